"""Methods that train no candidates: one ratio for all layers, a closed form, given widths, external pruners."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from bcnet.methods.base import Context, Kept, Method, Start
from bcnet.pruners import check_installed
from bcnet.space import Widths
from bcnet.space.options import BALANCE_EXPONENT
from bcnet.train.recipe import Count


class Uniform(Method):
    """The largest ratio, equal for all groups, that satisfies the budget. Every run trains this Uniform network."""

    name: ClassVar[str] = "uniform"
    origin: ClassVar[str] = "All groups have the same ratio."
    narrowed: ClassVar[str] = "narrowed by one ratio"

    def widths(self, context: Context) -> Widths:
        """Return the widths of the largest feasible ratio."""
        widths: Widths = context.workload.space.uniform(context.workload.budget)
        return widths


class Balanced(Method):
    """Closed-form widths that depend on neither data nor weights (`WidthSpace.balanced`)."""

    name: ClassVar[str] = "balanced"
    origin: ClassVar[str] = "The widths follow from a formula that depends on neither data nor weights."
    narrowed: ClassVar[str] = "narrowed by a formula that balances its layers"

    exponent: float = Field(default=BALANCE_EXPONENT, ge=0, le=2)
    """Exponent of a layer's number of positions in its share of the multiply-adds."""

    def widths(self, context: Context) -> Widths:
        """Return the balanced widths for the budget."""
        widths: Widths = context.workload.space.balanced(context.workload.budget, exponent=self.exponent)
        return widths


class Given(Method):
    """Widths that the user gives. Their cost is the budget of the Uniform network.

    `values` is a list of widths, one per group, a mapping of group names to widths, or text: comma-separated numbers, a
    JSON file, a run directory, or "published:VARIANT".
    """

    name: ClassVar[str] = "given"
    origin: ClassVar[str] = "The widths were given."
    narrowed: ClassVar[str] = "narrowed to given widths"
    values: tuple[Count, ...] | dict[str, Count] | str
    """The widths, one per group, or the place to read them from."""

    def __init__(self, values: object, **fields: Any) -> None:
        super().__init__(values=values, **fields)

    @field_validator("values", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if type(value) is int:  # one group, written as given:values=24
            return (value,)
        if not isinstance(value, (str, Mapping, Sequence)):
            raise ValueError("a list of widths, a mapping of groups to widths, or text")
        return value

    @property
    def usual_start(self) -> Start:
        """Random weights, since no search started from trained ones."""
        return "scratch"

    def widths(self, context: Context) -> Widths:
        """Return the widths; a run resolves them to numbers before it starts."""
        assert isinstance(self.values, tuple), "widths are numbers once a run has started"
        return self.values


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

    def __init__(self, criterion: Criterion = "magnitude", **fields: Any) -> None:
        super().__init__(criterion=criterion, **fields)

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
