"""Errors a user can cause. Each states the rule, the value got, and what to do."""


class BCNetError(Exception):
    """Base class of every error that `bcnet` raises on purpose."""


class TraceError(BCNetError):
    """The model could not be turned into a width space."""


class WidthError(BCNetError, ValueError):
    """Widths that do not belong to the space they are used with."""


class BudgetError(BCNetError, ValueError):
    """A budget out of range, or below the narrowest network of the space."""


class DataError(BCNetError):
    """A data set that is missing, unreadable, or does not fit the network."""


class ModelError(BCNetError):
    """An unknown model name, or a factory that does not give a module."""


class RecipeError(BCNetError, ValueError):
    """Settings that are unknown, of the wrong type, or impossible together."""


class TrainingError(BCNetError):
    """Training that cannot go on, for instance because the loss is not a number."""


class SearchError(BCNetError):
    """A search that cannot go on, for instance because a score is not a number."""


class RunError(BCNetError):
    """A run directory that cannot be used: another configuration, or no run at all."""


class ProcessError(BCNetError):
    """Processes of one run that do not find each other, differ, or have gone."""


class ExportError(BCNetError):
    """A network that cannot be written in another format, or differs there from what it was."""


class OpenBatchError(ExportError):
    """A network whose code takes the batch size for a constant, so that no file of it can leave the size open.

    Args:
        reason: which network, and at which line of its code.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"a network is exported with an open batch size; {reason}: write x.shape[0] for len(x) or a number, or fix "
            "the batch size (--batch 1)"
        )
        self.reason = reason


def first_line(error: BaseException) -> str:
    """Type and first line of an error."""
    return f"{type(error).__name__}: {next((line for line in str(error).splitlines() if line.strip()), '')}"
