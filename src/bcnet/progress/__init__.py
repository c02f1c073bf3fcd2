"""Events of a run, and their reporters: terminal, JSON lines, TensorBoard, and the run's own record."""

from bcnet.progress.base import Reporter, Together

__all__ = ["Reporter", "Together", "console_reporter"]


def console_reporter() -> Reporter:
    """Return a reporter with bars in a terminal or notebook, and lines elsewhere."""
    from bcnet.progress import terminal  # rich is imported only when progress is shown

    return terminal.console_reporter()
