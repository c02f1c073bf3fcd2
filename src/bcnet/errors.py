"""Errors that users can cause. Each message says what is wrong, the value received, and what to do."""


class BCNetError(Exception):
    """Base class of every error that `bcnet` raises on purpose."""


class TraceError(BCNetError):
    """The model cannot be traced into a width space."""


class WidthError(BCNetError, ValueError):
    """Widths that do not fit their space."""


class BudgetError(BCNetError, ValueError):
    """A budget out of range, or below the cost of the narrowest network."""


class DataError(BCNetError):
    """Data that are missing, unreadable or do not fit the network."""


class ModelError(BCNetError):
    """An unknown model name, or a factory that does not return a module."""


class RecipeError(BCNetError, ValueError):
    """Settings that are unknown, of the wrong type, or contradictory."""


class TrainingError(BCNetError):
    """Training that cannot continue, for instance because the loss is NaN."""


class SearchError(BCNetError):
    """A search that cannot continue, for instance because a score is NaN."""


class RunError(BCNetError):
    """A directory that cannot be used as the run directory: it holds another run, or no run."""


class ProcessError(BCNetError):
    """Processes of one run that cannot connect, disagree, or have ended."""


class ExportError(BCNetError):
    """A network that cannot be exported, or whose exported file computes other outputs."""


class OpenBatchError(ExportError):
    """A network for which no exported file can leave the batch size open.

    Args:
        reason: the network, what fixes its batch size, and what would leave it open, if anything.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"a network is exported with an open batch size; {reason}: change its code, or fix the batch size "
            "(--batch 1)"
        )
        self.reason = reason


def first_line(error: BaseException) -> str:
    """Return the type and the first line of an error."""
    return f"{type(error).__name__}: {next((line for line in str(error).splitlines() if line.strip()), '')}"


def last_line(error: BaseException) -> str:
    """Return the type and the last line of an error.

    That of a `DataLoader`'s worker repeats the whole traceback and ends with the message.
    """
    kind = f"{type(error).__name__}: "
    lines = [line for line in str(error).splitlines() if line.strip()]
    return kind + (lines[-1].removeprefix(kind) if lines else "")
