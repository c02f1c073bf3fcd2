"""Expected cost of independent rows, as a sum of factors.

Notation: `P` is a distribution with one row per group, `P[g]` over the choices of group `g`; groups are independent. A
cost polynomial `sum coef * prod width[g]` has the expectation (Eq. 14, spec, section 4)

    E[cost] = constant + sum_f sum_{i, j, ..} table_f[i, j, ..] * P[g][i] * P[h][j] * ..

with one factor `f` per set of distinct groups `{g, h, ..}`. A square is `coef * E[c_g ** 2]`, linear in the row. A
product of different groups is the product of their means. The expectation is linear in every single row, and jointly
linear in the rows of groups that share no factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bcnet.costs import Budget, Constraint, Polynomial
from bcnet.space import WidthSpace
from bcnet.space.problem import FloatArray, IntArray

Rows = tuple[FloatArray, ...]  # one distribution per group
Scope = tuple[int, ...]


@dataclass(frozen=True)
class Factor:
    """A table over the choices of distinct `groups` (ascending), one axis each."""

    groups: tuple[int, ...]
    table: FloatArray


@dataclass(frozen=True)
class ExpectedCost:
    """Expectation of one cost as a share of its limit; it is at most 1 for feasible rows.

    `unary` has one vector per group, shape `(choices,)`. `factors` are those of two and more groups.
    """

    constant: float
    unary: Rows
    factors: tuple[Factor, ...]

    @classmethod
    def of(cls, constraint: Constraint, space: WidthSpace, limit: float) -> ExpectedCost:
        """Return the expectation of a polynomial or of tables over the choices of `space`, divided by `limit`."""
        choices = [np.array(group.choices, dtype=np.float64) for group in space.groups]
        if isinstance(constraint, Polynomial):
            tables = constraint.tables(choices, limit)
        else:
            tables = {scope: np.asarray(table, dtype=np.float64) / limit for scope, table in constraint.items()}
        return cls(
            constant=float(tables.get((), np.zeros(()))),
            unary=tuple(tables.get((g,), np.zeros(len(c))) for g, c in enumerate(choices)),
            factors=tuple(Factor(scope, table) for scope, table in sorted(tables.items()) if len(scope) > 1),
        )

    def scale(self, factor: float) -> ExpectedCost:
        """Return the same cost under a limit that is `factor` times as tight."""
        factors = tuple(Factor(f.groups, factor * f.table) for f in self.factors)
        return ExpectedCost(factor * self.constant, tuple(factor * u for u in self.unary), factors)

    @cached_property
    def _of_group(self) -> list[list[Factor]]:
        lists: list[list[Factor]] = [[] for _ in self.unary]
        for factor in self.factors:
            for group in factor.groups:
                lists[group].append(factor)
        return lists

    def neighbours(self, group: int) -> set[int]:
        """Return the groups that share a factor with `group`."""
        return {g for factor in self._of_group[group] for g in factor.groups} - {group}

    def __call__(self, rows: Sequence[FloatArray]) -> float:
        """Return the expected cost divided by the limit."""
        total = self.constant + sum(float(u @ p) for u, p in zip(self.unary, rows, strict=True))
        return total + sum(float(_contract(f, rows)) for f in self.factors)

    def of_indices(self, indices: IntArray) -> float:
        """Return the cost of one candidate divided by the limit, `indices` of shape `(groups,)`."""
        total = self.constant + sum(float(u[i]) for u, i in zip(self.unary, indices, strict=True))
        return total + sum(float(f.table[tuple(indices[list(f.groups)])]) for f in self.factors)

    def gradient(self, rows: Sequence[FloatArray], group: int) -> FloatArray:
        """Return `d E[cost] / d P[group]`, shape `(choices of the group,)`.

        Exact, since the expectation is linear in a row.
        """
        total = self.unary[group].copy()
        for factor in self._of_group[group]:
            total += _contract(factor, rows, keep=group)
        return total


def _contract(factor: Factor, rows: Sequence[FloatArray], keep: int | None = None) -> FloatArray:
    """Return the expectation of a factor over its groups' rows except `keep`: a number, or a vector over that group."""
    value = factor.table
    if len(factor.groups) == 2:  # nearly all factors; the general method below takes ten times as long
        g, h = factor.groups
        left = value if keep == g else rows[g] @ value
        return np.asarray(left if keep == h else left @ rows[h])
    for axis in range(len(factor.groups) - 1, -1, -1):
        group = factor.groups[axis]
        if group != keep:
            value = np.asarray(np.moveaxis(value, axis, -1) @ rows[group])
    return value


def expected_costs(space: WidthSpace, limits: Budget) -> tuple[ExpectedCost, ...]:
    """Return one expected cost per constraint of an absolute budget: MACs first, then parameters, then other measures.

    If a measure has several constraints, those that no widths of the space violate are dropped, except for one.
    """
    full = np.array([space.full], dtype=np.int64)
    costs = []
    for measure, limit in limits.limits.items():
        sums = measure.constraints(space)
        binding = [s for s in sums if not isinstance(s, Polynomial) or s(full)[0] > limit]
        costs += [ExpectedCost.of(s, space, limit) for s in binding or sums[:1]]
    return tuple(costs)


def one_hot(indices: Sequence[int] | IntArray, sizes: Sequence[int] | IntArray) -> Rows:
    """Return rows with all probability on one choice per group."""
    return tuple(np.eye(int(size))[int(i)] for i, size in zip(indices, sizes, strict=True))
