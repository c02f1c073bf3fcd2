"""Feasible rows of small objective, by linear programmes over independent sets of the coupling graph.

Notation as in `qcqp`. With the rows outside an independent set `S` fixed, objective and costs are linear in the rows of
`S`: `sum over g in S of P[g] . E[g]` under `const_k + sum over g in S of P[g] . D_k[g] <= 1`. Its dual over the few
limits separates into one minimum per group, and the best mixture of the points met is its exact solution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from bcnet.searchers.dual import Cut, DualMaximum, maximise_dual
from bcnet.searchers.multilinear import ExpectedCost, Rows, one_hot
from bcnet.searchers.problem import FloatArray, IntArray

_SWEEPS = 30
_ROUNDING = 1e-9  # costs over their limits by this much count as held


class Recovery:
    """Finds feasible rows for potential `errors` under `costs`, down to an objective of `target`."""

    def __init__(self, errors: Rows, costs: tuple[ExpectedCost, ...], target: float) -> None:
        self._errors, self._costs, self._target = errors, costs, target
        self._sizes = [len(e) for e in errors]
        self._span = sum(float(np.ptp(e)) for e in errors)
        self._sets = independent_sets(costs)

    def objective(self, rows: Sequence[FloatArray]) -> float:
        """Expected potential error."""
        return sum(float(e @ p) for e, p in zip(self._errors, rows, strict=True))

    def best_from(self, starts: Iterable[IntArray], narrowest: object) -> Rows:
        """The best rows over all starts; stops early at the target."""
        best = self.improved(one_hot(np.asarray(narrowest), self._sizes))
        assert best is not None, "the narrowest candidate holds the budget"
        for start in starts:
            if self.objective(best) <= self._target:
                break
            rows = self.improved(one_hot(start, self._sizes))
            if rows is not None and self.objective(rows) < self.objective(best):
                best = rows
        return best

    def improved(self, rows: Rows) -> Rows | None:
        """Local optimum from `rows`, which may be over budget; None where no single set repairs that."""
        current = list(rows)
        feasible = self._holds(current)
        last = self.objective(current) if feasible else np.inf
        for _ in range(_SWEEPS):
            for members in self._sets:
                feasible = self._improve_set(current, members) or feasible
            if not feasible:
                return None
            value = self.objective(current)
            if last - value <= 1e-7 * self._span:
                break
            last = value
        return tuple(current)

    def _holds(self, rows: Sequence[FloatArray]) -> bool:
        return all(cost(rows) <= 1 + _ROUNDING for cost in self._costs)

    def _improve_set(self, rows: list[FloatArray], members: Sequence[int]) -> bool:
        """Solve the linear programme of one independent set in place; whether it has a solution."""
        slopes = [[cost.gradient(rows, g) for g in members] for cost in self._costs]  # per cost and member
        offsets = [
            cost(rows) - 1 - sum(float(s @ rows[g]) for s, g in zip(slope, members, strict=True))
            for cost, slope in zip(self._costs, slopes, strict=True)
        ]

        def cut(indices: Sequence[int]) -> Cut:
            objective = sum(float(self._errors[g][i]) for g, i in zip(members, indices, strict=True))
            slack = [
                offset + sum(float(s[i]) for s, i in zip(slope, indices, strict=True))
                for offset, slope in zip(offsets, slopes, strict=True)
            ]
            return Cut(objective, np.array(slack), indices)

        def oracle(multipliers: FloatArray) -> tuple[float, Cut]:
            indices = []
            for number, g in enumerate(members):
                reduced = self._errors[g] + sum(m * slope[number] for m, slope in zip(multipliers, slopes, strict=True))
                indices.append(int(np.argmin(reduced)))
            found = cut(indices)
            return found.objective + float(multipliers @ found.slack), found

        cheapest = cut([int(np.argmin(sum(slope[n] for slope in slopes))) for n in range(len(members))])
        if (cheapest.slack > _ROUNDING).any():
            return False
        self._mix(rows, members, maximise_dual(oracle, cheapest, 1e-9 * self._span))
        return True

    def _mix(self, rows: list[FloatArray], members: Sequence[int], dual: DualMaximum) -> None:
        for number, g in enumerate(members):
            row = np.zeros(self._sizes[g])
            for weight, cut in zip(dual.weights, dual.cuts, strict=True):
                row[cut.point[number]] += weight  # type: ignore[index]
            rows[g] = row / row.sum()


def independent_sets(costs: Sequence[ExpectedCost]) -> list[list[int]]:
    """Groups in sets whose members share no factor: a greedy colouring, made maximal, so that sets may overlap."""
    count = len(costs[0].unary)
    neighbours = [set().union(*(cost.neighbours(g) for cost in costs)) for g in range(count)]
    sets: list[list[int]] = []
    for g in sorted(range(count), key=lambda g: -len(neighbours[g])):
        home = next((s for s in sets if not neighbours[g].intersection(s)), None)
        if home is None:
            sets.append([g])
        else:
            home.append(g)
    for members in sets:
        for g in range(count):
            if g not in members and not neighbours[g].intersection(members):
                members.append(g)
    return [sorted(members) for members in sets]
