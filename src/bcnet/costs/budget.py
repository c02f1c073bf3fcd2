"""Budgets: upper limits on measures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from bcnet.costs.base import Cost, Measure, Measured
from bcnet.costs.counts import MACS, PARAMS
from bcnet.costs.latency import LATENCY
from bcnet.costs.memory import MEMORY, SIZE
from bcnet.costs.microcontroller import ARENA, FLASH
from bcnet.costs.polynomial import IntArray
from bcnet.display import table
from bcnet.errors import BudgetError, RunError

MEASURES: Mapping[str, Measure] = MappingProxyType(
    {m.name: m for m in (MACS, PARAMS, MEMORY, SIZE, LATENCY, ARENA, FLASH)}
)
"""Measures that `Budget` accepts by name."""

Limit = int | float
Given = int | float | str  # as in "320 KiB"


class Budget:
    """Upper limits on a network's cost: multiply-adds, parameters, bytes, any other measure, or several at once.

    A float in (0, 1.5] is a ratio of the original network's cost, an int an absolute count, and text is either of them,
    optionally with a unit. `others` holds limits on your own measures, or on built-in ones with non-default settings.

    Args:
        macs: multiply-adds for one input.
        params: parameters.
        memory: peak bytes of activations in fp32 for one input (`bcnet.Memory`).
        size: bytes of the weights in fp32 (`bcnet.Size`).
        latency: time for one input on PyTorch with one thread, "2 ms" (`bcnet.Latency`).
        arena: bytes of tflite-micro's arena on a microcontroller, for the int8 network (`bcnet.Arena`).
        flash: bytes of the int8 file (`bcnet.Flash`).

    Example: `Budget(macs=0.5)` is half the multiply-adds. `Budget(macs="150M", memory="320 KiB")` sets two limits.
    `Budget({bcnet.Memory("int8"): "64 KiB", Weighted(): 0.5})` limits memory in int8 and a measure of your own.

    Raises:
        BudgetError: no limit, or an invalid value.
    """

    __slots__ = ("limits",)
    limits: Mapping[Measure, Limit]

    def __init__(
        self,
        others: Mapping[Measure, Given] | None = None,
        /,
        *,
        macs: Given | None = None,
        params: Given | None = None,
        memory: Given | None = None,
        size: Given | None = None,
        latency: Given | None = None,
        arena: Given | None = None,
        flash: Given | None = None,
    ) -> None:
        named = {MACS: macs, PARAMS: params, MEMORY: memory, SIZE: size, LATENCY: latency, ARENA: arena, FLASH: flash}
        given = [(measure, limit) for measure, limit in named.items() if limit is not None]
        given += _checked_measures(others or {}).items()
        _check_names([measure for measure, _ in given])
        limits = {measure: measure.limit(v) if isinstance(v, str) else v for measure, v in given}
        if not limits:
            raise BudgetError(
                "a budget needs at least one limit; got none: give macs=0.5 or macs=150_000_000, for instance"
            )
        for measure, limit in limits.items():
            _check_limit(measure.name, limit)
        object.__setattr__(self, "limits", MappingProxyType(limits))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a budget does not change; make another one to set {name}")

    def __reduce__(self) -> tuple[type[Budget], tuple[dict[Measure, Limit]]]:
        return Budget, (dict(self.limits),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Budget) and dict(self.limits) == dict(other.limits)

    def __hash__(self) -> int:
        return hash(frozenset(self.limits.items()))

    def __repr__(self) -> str:
        named = [f"{m.name}={v!r}" for m, v in self.limits.items() if MEASURES.get(m.name) == m]
        own = {m: v for m, v in self.limits.items() if MEASURES.get(m.name) != m}
        return f"Budget({', '.join([repr(own)] * bool(own) + named)})"

    @property
    def macs(self) -> Limit | None:
        """Limit on multiply-adds, or None."""
        return self.limits.get(MACS)

    @property
    def params(self) -> Limit | None:
        """Limit on parameters, or None."""
        return self.limits.get(PARAMS)

    @property
    def others(self) -> dict[Measure, Limit]:
        """Limits on other measures."""
        return {measure: limit for measure, limit in self.limits.items() if measure not in (MACS, PARAMS)}

    def measure(self, name: str) -> Measure | None:
        """Return the limited measure of this name, or None."""
        return next((measure for measure in self.limits if measure.name == name), None)

    def with_measure(self, measure: Measure) -> Budget:
        """Return the same limits with the measure of this name replaced, for instance by one with a fitted model."""
        return Budget({measure if m.name == measure.name else m: limit for m, limit in self.limits.items()})

    def resolve(self, reference: Cost) -> Budget:
        """Return the budget in absolute counts; ratios refer to `reference`.

        Raises:
            BudgetError: a ratio of a measure with fractional values gives less than 1, which a whole limit cannot
                express.
        """
        return Budget({m: _absolute(m, limit, m.of_original(reference[m.name])) for m, limit in self.limits.items()})

    def admits(self, cost: Cost) -> Any:
        """Return whether `cost` satisfies every limit, as a bool or an array of them. Limits must be absolute."""
        verdict: Any = True
        for measure, limit in self.limits.items():
            assert not (isinstance(limit, float) and measure in (MACS, PARAMS)), "resolve() the budget first"
            verdict = verdict & (cost[measure.name] <= limit)
        return verdict

    def _repr_html_(self) -> str:
        return table("Budget", ("at most",), [(part,) for part in str(self).split(" and ")])

    def __str__(self) -> str:
        parts = self.limits.items()
        return " and ".join(f"{v:g}x {m.unit}" if isinstance(v, float) else m.text(v) for m, v in parts)


def check_budget(budget: object) -> Budget:
    """Return `budget` itself.

    Raises:
        BudgetError: not a budget.
    """
    if not isinstance(budget, Budget):
        raise BudgetError(f"a budget must be a bcnet.Budget; got {budget!r}: write Budget(macs=0.5), for instance")
    return budget


def one_budget(budget: Budget | None, macs: Limit | None, params: Limit | None) -> Budget:
    """Return the given budget, or one of the limits on multiply-adds and parameters.

    Raises:
        BudgetError: neither or both, not a budget, or an invalid limit.
    """
    if budget is None:
        return Budget(macs=macs, params=params)
    if macs is not None or params is not None:
        raise BudgetError(f"give either a budget or macs= and params=; got {budget!r} and macs={macs}, params={params}")
    return check_budget(budget)


@dataclass(frozen=True)
class Recorded(Measure):
    """A user's own measure as read from a file: its stored values, without its code."""

    described: str

    def __post_init__(self) -> None:
        # set on the instance, since other measures set it on the class
        name = self.described.partition(" ")[0]
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "unit", name)

    @property
    def description(self) -> str:
        """Description that the user's measure gave."""
        return self.described

    @property
    def countable(self) -> bool:
        """Always False."""
        return False

    def values(self, space: Measured, widths: IntArray) -> NoReturn:
        """Raise RunError."""
        raise RunError(f"the budget limits {self.described!r}, which only your code can count: give budget=... again")

    def constraints(self, space: Measured) -> NoReturn:
        """Raise RunError."""
        self.values(space, np.zeros((0, 0), dtype=np.int64))


def measure_called(name: str, own: Iterable[Measure] = ()) -> Measure:
    """Return the measure that a file calls `name`: a built-in one, one of `own`, or a `Recorded` one."""
    known = {measure.description: measure for measure in own}
    return known.get(name) or measure_named(name) or Recorded(name)


def measure_named(text: str) -> Measure | None:
    """Parse the name and settings of a built-in measure, such as "macs" or "memory:int8"; None if unknown.

    "memory:tflm" is tflite-micro's arena.

    Raises:
        BudgetError: settings that it does not take.
    """
    if text == "memory:tflm":
        return ARENA
    name, *words = text.split(":")
    if name not in MEASURES or not words:
        return MEASURES.get(text)
    kind = type(MEASURES[name])
    settings = kind.read_settings(words)
    fields = [field for field in dataclasses.fields(MEASURES[name]) if field.compare]  # type: ignore[arg-type]
    if len(settings) > len(fields):
        raise BudgetError(f"{name} takes {len(fields)} settings behind colons; got {text!r}: write {name}, say")
    return kind(*settings)


def _checked_measures(others: Mapping[Measure, Given]) -> Mapping[Measure, Given]:
    if not isinstance(others, Mapping) or not all(isinstance(measure, Measure) for measure in others):
        raise BudgetError(
            f"limits on other measures must be a mapping of bcnet.Measure to limit; got {others!r}: write "
            "Budget({mine: 0.5}), or Budget(macs=0.5) for multiply-adds"
        )
    return others


def _check_names(measures: Sequence[Measure]) -> None:
    names = [measure.name for measure in measures]
    for measure in measures:
        ours = MEASURES.get(measure.name)
        if ours is not None and type(measure) is not type(ours):
            raise BudgetError(f"{measure.name!r} is a measure of the library; got another one of this name: rename it")
    if len(set(names)) < len(names):
        raise BudgetError(f"a budget limits each measure once; got {', '.join(names)}: give the measures other names")


def _check_limit(name: str, value: object) -> None:
    rule = f"budget {name} must be a ratio (float) in (0, 1.5] of the original network, or a positive count (int)"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BudgetError(f"{rule}; got {value!r}: write 0.5 or 150_000_000, for instance")
    if isinstance(value, float) and not (math.isfinite(value) and 0 < value <= 1.5):
        raise BudgetError(f"{rule}; got {value!r}: a count is written as an int")
    if isinstance(value, int) and value < 1:
        raise BudgetError(f"{rule}; got {value!r}: give at least 1")


def _absolute(measure: Measure, limit: Limit, reference: float) -> int:
    if not isinstance(limit, float):
        return limit
    if isinstance(reference, float) and limit * reference < 1:
        raise BudgetError(
            f"limits are whole numbers of a measure's unit; {limit:g} of the original's {measure.text(reference)} is "
            "less than 1: give the measure a finer unit"
        )
    return max(1, math.floor(limit * reference))
