"""The paper's networks that torchvision lacks, and published widths."""
