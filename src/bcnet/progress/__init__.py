"""One stream of events about a run, and those who listen: terminal, JSON lines, TensorBoard, the run's own record."""
