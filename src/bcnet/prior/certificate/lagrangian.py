"""Lagrangian of the prior's QCQP: a discrete problem over single widths, and candidates near its minimum.

Notation as in `qcqp`: `E` the potential errors, `f_k` the costs over their limits, `lam_k >= 0` their multipliers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bcnet.prior.certificate.dual import Cut, DualMaximum, maximise_dual
from bcnet.prior.certificate.elimination import Elimination, Scope
from bcnet.prior.expected_cost import ExpectedCost, Rows
from bcnet.space.problem import FloatArray, IntArray

_TILTS = (0.05, 3.0, 24)  # smallest, largest, how many; in units of the mean range of a group's errors


class Lagrangian:
    """`min over one choice per group of sum E + lam . (f - 1)`, for any multipliers."""

    def __init__(self, errors: Rows, costs: tuple[ExpectedCost, ...], max_cells: int) -> None:
        self.costs = costs
        self._errors = errors
        self._sizes = [len(e) for e in errors]
        self._scopes: list[Scope] = [(g,) for g in range(len(errors))]
        self._scopes += sorted({f.groups for cost in costs for f in cost.factors})
        self._tables = [self._align(cost) for cost in costs]
        self._plan = Elimination(self._scopes, self._sizes, max_cells)

    @property
    def exact(self) -> bool:
        """Return whether minima are exact rather than bounded from below."""
        return self._plan.exact

    def _align(self, cost: ExpectedCost) -> list[FloatArray]:
        own = {f.groups: f.table for f in cost.factors}
        zeros = (np.zeros([self._sizes[g] for g in scope]) for scope in self._scopes[len(self._errors) :])
        pairs = zip(self._scopes[len(self._errors) :], zeros, strict=True)
        return [*cost.unary, *(own.get(scope, zero) for scope, zero in pairs)]

    def cut(self, indices: IntArray) -> Cut:
        """Return objective and constraint values of one candidate, `indices` of shape `(groups,)`."""
        objective = sum(float(e[i]) for e, i in zip(self._errors, indices, strict=True))
        return Cut(objective, np.array([cost.of_indices(indices) - 1 for cost in self.costs]), indices)

    def value(self, multipliers: FloatArray, errors: Rows | None = None) -> tuple[float, Cut]:
        """Return the minimum (or its bound) at `multipliers`, and the cut of the assignment found there."""
        shown = self._errors if errors is None else errors
        tables = []
        for number in range(len(self._scopes)):
            table = sum(m * t[number] for m, t in zip(multipliers, self._tables, strict=True))
            tables.append(np.asarray(shown[number] + table if number < len(shown) else table))
        # For fixed multipliers the Lagrangian is a sum of factors over groups, which elimination minimises.
        minimum = self._plan.minimise(tables)
        value = minimum.bound + float(sum(m * (c.constant - 1) for m, c in zip(multipliers, self.costs, strict=True)))
        if self.exact:
            return value, self.cut(minimum.assignment)
        # With split buckets no single assignment attains the bound, but the cells used in it still give a valid cut.
        slack = [
            c.constant - 1 + sum(float(t[cell]) for t, cell in zip(tables_of, minimum.cells, strict=True))
            for c, tables_of in zip(self.costs, self._tables, strict=True)
        ]
        objective = sum(float(e[cell]) for e, cell in zip(shown, minimum.cells, strict=False))
        return value, Cut(objective, np.array(slack), minimum.assignment)

    def maximise(self, tolerance: float) -> DualMaximum:
        """Return the largest lower bound over all multipliers, starting from the narrowest candidate's cut."""
        narrowest = self.cut(np.zeros(len(self._errors), dtype=np.int64))
        return maximise_dual(self.value, [narrowest], tolerance)

    def mixed_candidates(self, dual: DualMaximum) -> list[IntArray]:
        """Return the candidates `(groups,)` that are mixed at the maximum, the largest weight first."""
        order = np.argsort(-dual.weights, kind="stable")[: np.count_nonzero(dual.weights)]
        return [np.asarray(dual.cuts[number].point) for number in order if dual.cuts[number].point is not None]

    def tilted_candidates(self, dual: DualMaximum, seed: int) -> Iterator[IntArray]:
        """Iterate over candidates `(groups,)` with a small Lagrangian for slightly changed errors.

        The errors of each group are tilted towards wide or narrow by normal draws of growing size. This moves whole
        sets of rows from one optimal candidate to the other.
        """
        rng = np.random.default_rng(seed)
        spread = np.mean([np.ptp(e) for e in self._errors])
        for size in spread * np.geomspace(*_TILTS):
            tilted = tuple(e + rng.normal(0, size) * np.linspace(0, 1, len(e)) for e in self._errors)
            yield np.asarray(self.value(dual.multipliers, tilted)[1].point)
