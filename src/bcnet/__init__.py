"""Find the best channel widths of a convolutional network under a compute budget."""
