"""Search strategies over a width space, for any score function."""
