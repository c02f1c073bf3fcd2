"""The supernet: paths as slices of a model's own parameters."""
