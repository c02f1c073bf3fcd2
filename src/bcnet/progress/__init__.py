"""One stream of events about a run, and those who listen: terminal, JSON lines, TensorBoard, the run's own record."""

from bcnet.progress.base import Reporter, Together

__all__ = ["Reporter", "Together", "console_reporter"]


def console_reporter() -> Reporter:
    """Bars where the output is a terminal or a notebook, lines where it is neither."""
    from bcnet.progress import terminal  # rich is imported where something is shown

    return terminal.console_reporter()
