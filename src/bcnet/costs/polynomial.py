"""Polynomials in the widths, the cost of a traced network.

Multiply-adds and parameters are polynomials in the widths, `sum coef * prod width[g]`, since every convolution
multiplies one output width with one input width. They are read off the trace once. Evaluating a candidate then never
runs a network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
_CHUNK = 8192  # candidates evaluated at once, so that the columns of a chunk stay in the cache


@dataclass(frozen=True)
class Polynomial:
    """`sum coef * prod width[g]` with exact integer coefficients.

    `terms` maps a sorted tuple of group indices to its coefficient: `()` is the constant, `(2,)` linear in group 2,
    `(2, 5)` a product, `(2, 2)` a square.

    Example: a 3x3 convolution from group 0 to group 1 on 8x8 outputs is `Polynomial({(0, 1): 576})`.
    """

    terms: Mapping[tuple[int, ...], int]

    def __call__(self, widths: IntArray) -> IntArray:
        """Return values at `widths`, `(candidates, groups)` -> `(candidates,)`."""
        values = np.empty(len(widths), dtype=np.int64)
        for start in range(0, len(widths), _CHUNK):
            columns = np.ascontiguousarray(widths[start : start + _CHUNK].T)  # (groups, chunk)
            values[start : start + _CHUNK] = self._of_columns(columns)
        return values

    def to_list(self) -> list[list[Any]]:
        """Return plain lists and numbers for JSON; `from_list` is the inverse."""
        return [[list(groups), value] for groups, value in self.terms.items()]

    @classmethod
    def from_list(cls, terms: Sequence[Any]) -> Polynomial:
        """Return the polynomial that `to_list` wrote."""
        return cls({tuple(groups): value for groups, value in terms})

    def __mul__(self, factor: int | Polynomial) -> Polynomial:
        others = factor.terms if isinstance(factor, Polynomial) else {(): factor}
        product: dict[tuple[int, ...], int] = defaultdict(int)
        for a, x in self.terms.items():
            for b, y in others.items():
                product[tuple(sorted(a + b))] += x * y
        return Polynomial(dict(product))

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for groups, coefficient in other.terms.items():
            terms[groups] = terms.get(groups, 0) + coefficient
        return Polynomial(dict(sorted(terms.items())))

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

    def tables(self, choices: Sequence[FloatArray], limit: float = 1.0) -> dict[tuple[int, ...], FloatArray]:
        """Return values over `limit` as a sum of tables: ascending groups -> an axis over the choices of each."""
        tables: dict[tuple[int, ...], FloatArray] = {}
        for groups, coefficient in self.terms.items():
            scope = tuple(sorted(set(groups)))
            powers = [choices[g] ** groups.count(g) for g in scope]
            table = coefficient / limit * reduce(np.multiply.outer, powers, np.ones(()))
            tables[scope] = tables[scope] + table if scope in tables else table
        return tables

    @cached_property
    def _by_first_group(self) -> dict[int, list[tuple[tuple[int, ...], int]]]:
        """Non-constant terms, factored: first group -> (other groups, coefficient)."""
        factored: dict[int, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
        for groups, coefficient in self.terms.items():
            if groups:
                factored[groups[0]].append((groups[1:], coefficient))
        return factored
