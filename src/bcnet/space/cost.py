"""Costs of widths, and budgets on them.

MACs and parameters of a network are polynomials in its widths, `sum coef * prod width[g]`, since every
convolution multiplies one output width with one input width. They are read off the trace once; from then on
costing a candidate never runs a network.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bcnet.errors import BudgetError
from bcnet.space.display import table
from bcnet.space.layout import Layout

IntArray = npt.NDArray[np.int64]
_CHUNK = 8192  # candidates costed at once: the columns of a chunk stay in the cache


class Cost(NamedTuple):
    """What a network takes: `macs` multiply-adds for one input (the paper's FLOPs) and `params` parameters.

    Both are ints for one network and int64 arrays of shape `(candidates,)` for many.
    """

    macs: Any
    params: Any

    def _repr_html_(self) -> str:
        if np.ndim(self.macs) == 0:
            return table("Cost for one input", ("MACs", "parameters"), [(int(self.macs), int(self.params))])
        rows = zip(self.macs.tolist(), self.params.tolist(), strict=True)
        return table("Cost for one input", ("MACs", "parameters"), rows)


@dataclass(frozen=True)
class Polynomial:
    """`sum coef * prod width[g]` with exact integer coefficients.

    `terms` maps a sorted tuple of group indices to its coefficient: `()` is the constant, `(2,)` linear in group 2,
    `(2, 5)` a product, `(2, 2)` a square.

    Example: a 3x3 convolution from group 0 to group 1 on 8x8 outputs is `Polynomial({(0, 1): 576})`.
    """

    terms: Mapping[tuple[int, ...], int]

    def __call__(self, widths: IntArray) -> IntArray:
        """Values at `widths`, shape `(candidates, groups)` -> `(candidates,)`."""
        values = np.empty(len(widths), dtype=np.int64)
        for start in range(0, len(widths), _CHUNK):
            columns = np.ascontiguousarray(widths[start : start + _CHUNK].T)  # (groups, chunk)
            values[start : start + _CHUNK] = self._of_columns(columns)
        return values

    def _of_columns(self, columns: IntArray) -> IntArray:
        total = np.full(columns.shape[1], self.terms.get((), 0), dtype=np.int64)
        for first, rest in self._by_first_group.items():
            inner = np.zeros(columns.shape[1], dtype=np.int64)
            for others, coefficient in rest:
                factor: Any = coefficient
                for group in others:
                    factor = columns[group] * factor
                inner += factor
            total += columns[first] * inner
        return total

    @cached_property
    def _by_first_group(self) -> dict[int, list[tuple[tuple[int, ...], int]]]:
        """The non-constant terms, factored: first group -> (other groups, coefficient)."""
        factored: dict[int, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
        for groups, coefficient in self.terms.items():
            if groups:
                factored[groups[0]].append((groups[1:], coefficient))
        return factored


def sum_of_products(products: Iterable[tuple[int, Sequence[Layout]]]) -> Polynomial:
    """The polynomial `sum coef * prod size(layout)` over `(coef, layouts)` pairs."""
    terms: dict[tuple[int, ...], int] = defaultdict(int)
    for coefficient, layouts in products:
        partial: dict[tuple[int, ...], int] = {(): coefficient}
        for layout in layouts:
            partial = _times(partial, _linear_form(layout))
        for groups, value in partial.items():
            terms[groups] += value
    return Polynomial(dict(sorted(terms.items())))


def _linear_form(layout: Layout) -> dict[tuple[int, ...], int]:
    form: dict[tuple[int, ...], int] = defaultdict(int)
    for segment in layout:
        if segment.group is None:
            form[()] += segment.size
        else:
            form[(segment.group,)] += segment.per_channel
    return form


def _times(left: Mapping[tuple[int, ...], int], right: Mapping[tuple[int, ...], int]) -> dict[tuple[int, ...], int]:
    product: dict[tuple[int, ...], int] = defaultdict(int)
    for a, x in left.items():
        for b, y in right.items():
            product[tuple(sorted(a + b))] += x * y
    return product


@dataclass(frozen=True, kw_only=True)
class Budget:
    """An upper limit on MACs, on parameters, or on both.

    A float in (0, 1.5] is a ratio of the original network's cost, an int an absolute count.

    Example: `Budget(macs=0.5)` is half the multiply-adds; `Budget(macs=150_000_000, params=0.4)` sets both limits.

    Raises:
        BudgetError: no limit given, or a value that is neither such a float nor a positive int.
    """

    macs: int | float | None = None
    params: int | float | None = None

    def __post_init__(self) -> None:
        if self.macs is None and self.params is None:
            raise BudgetError(
                "a budget needs at least one limit; got none: give macs=0.5 or macs=150_000_000, for instance"
            )
        for name in ("macs", "params"):
            _check_limit(name, getattr(self, name))

    def resolve(self, reference: Cost) -> Budget:
        """The same budget in absolute counts, ratios taken of `reference`."""
        return Budget(macs=_absolute(self.macs, reference.macs), params=_absolute(self.params, reference.params))

    def admits(self, cost: Cost) -> Any:
        """Whether `cost` holds every limit: a bool, or a bool array for a cost of arrays. Needs absolute limits."""
        verdict: Any = True
        for limit, value in ((self.macs, cost.macs), (self.params, cost.params)):
            assert not isinstance(limit, float), "resolve() the budget first"
            if limit is not None:
                verdict = verdict & (value <= limit)
        return verdict

    def _repr_html_(self) -> str:
        return table("Budget", ("at most",), [(part,) for part in str(self).split(" and ")])

    def __str__(self) -> str:
        parts = ((self.macs, "MACs"), (self.params, "parameters"))
        return " and ".join(f"{v:g}x {n}" if isinstance(v, float) else f"{v:,} {n}" for v, n in parts if v is not None)


def _check_limit(name: str, value: object) -> None:
    rule = f"budget {name} is a ratio (float) in (0, 1.5] of the original network, or a positive count (int)"
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BudgetError(f"{rule}; got {value!r}: write 0.5 or 150_000_000, for instance")
    if isinstance(value, float) and not (math.isfinite(value) and 0 < value <= 1.5):
        raise BudgetError(f"{rule}; got {value!r}: a count is written as an int")
    if isinstance(value, int) and value < 1:
        raise BudgetError(f"{rule}; got {value!r}: give at least 1")


def _absolute(limit: int | float | None, reference: int) -> int | None:
    return max(1, math.floor(limit * reference)) if isinstance(limit, float) else limit
