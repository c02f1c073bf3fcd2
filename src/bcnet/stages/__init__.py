"""The stages of a run, each reading its output from the run directory where it is finished, and else making it."""
