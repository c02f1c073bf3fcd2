"""Run directories, stages, resume."""
