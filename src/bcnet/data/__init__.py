"""Data sets as tensors: loading, splitting, batching, augmentation."""
