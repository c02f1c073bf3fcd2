"""Method `pruned`: widths from another library's pruner, applied to the trained original."""

from __future__ import annotations

from typing import ClassVar, Literal

from bcnet.methods.base import Context, Kept, Method
from bcnet.pruners import check_installed
from bcnet.space import Widths

Criterion = Literal["magnitude", "taylor", "fastnas"]


class Pruned(Method):
    """The trained original, pruned until it satisfies the budget: its widths and the kept channels.

    "magnitude" and "taylor" are global pruning by Torch-Pruning (extra `magnitude`): by weight magnitude, and by
    first-order Taylor terms of the loss (not available for imitation). "fastnas" is FastNAS of NVIDIA's Model Optimizer
    (extra `fastnas`), which reports widths but no channels.
    """

    name: ClassVar[str] = "pruned"
    origin: ClassVar[str] = "The widths result from pruning the trained original."
    narrowed: ClassVar[str] = "narrowed by pruning the trained original"

    criterion: Criterion = "magnitude"
    """Criterion that selects the channels to remove."""

    def __init__(self, criterion: Criterion = "magnitude") -> None:
        super().__init__(criterion=criterion)

    def stages(self) -> tuple[str, ...]:
        """Stage that prunes the trained original."""
        return ("pruning",)

    def widths(self, context: Context) -> Widths:
        """Return the widths after pruning."""
        widths: Widths = context.output("pruning").widths
        return widths

    def select_channels(self, context: Context) -> Kept:
        """Return the channels that the pruner kept; {} with FastNAS."""
        kept: Kept = context.output("pruning").kept
        return kept

    def check(self) -> None:
        """Raise RecipeError if the pruner's package is not installed."""
        check_installed(self.criterion)
