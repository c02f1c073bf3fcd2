"""The method `pruned`: widths that another library's pruner leaves of the trained original."""

from __future__ import annotations

from typing import ClassVar, Literal

from bcnet.methods.base import Context, Kept, Method
from bcnet.pruners import check_installed
from bcnet.space import Widths

Criterion = Literal["magnitude", "taylor", "fastnas"]


class Pruned(Method):
    """The trained original, pruned until it satisfies the budget: its widths, and the channels that were kept.

    "magnitude" and "taylor" are global pruning by Torch-Pruning (extra `magnitude`), by the size of weights and by the
    first-order Taylor terms of the loss, which an imitation has none of. "fastnas" is FastNAS of NVIDIA's Model
    Optimizer (extra `fastnas`), which says nothing of single channels.
    """

    name: ClassVar[str] = "pruned"
    origin: ClassVar[str] = "The widths are what pruning left of the trained original."
    narrowed: ClassVar[str] = "narrowed by pruning the trained original"

    criterion: Criterion = "magnitude"
    """What decides which channels go."""

    def __init__(self, criterion: Criterion = "magnitude") -> None:
        super().__init__(criterion=criterion)

    def stages(self) -> tuple[str, ...]:
        """The stage that prunes the trained original."""
        return ("pruning",)

    def widths(self, context: Context) -> Widths:
        """Return the widths that the pruner left."""
        widths: Widths = context.output("pruning").widths
        return widths

    def select_channels(self, context: Context) -> Kept:
        """Return the channels that the pruner left; none by FastNAS."""
        kept: Kept = context.output("pruning").kept
        return kept

    def check(self) -> None:
        """Raise RecipeError where the pruner's package is not installed."""
        check_installed(self.criterion)
