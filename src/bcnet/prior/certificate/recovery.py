"""Feasible rows of small objective, by linear programmes over independent sets of the coupling graph.

Notation as in `qcqp`. With the rows outside an independent set `S` fixed, objective and costs are linear in the rows of
`S`: `sum over g in S of P[g] . E[g]` subject to `const_k + sum over g in S of P[g] . D_k[g] <= 1`. The dual over the
few limits separates into one minimum per group, and the best mixture of the visited points is its exact solution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from bcnet.prior.certificate.dual import Cut, DualMaximum, maximise_dual
from bcnet.prior.expected_cost import ExpectedCost, Rows, one_hot
from bcnet.space.problem import FloatArray, IntArray

_SWEEPS = 30
_FIRST_SETS = 6  # sparse graphs have no more; the first set determines where an infeasible start ends
_NEVER = 1e100  # finite, since infinity times a zero multiplier is NaN
_ROUNDING = 1e-9  # costs above their limits by this much count as feasible


class Recovery:
    """Finds feasible rows for potential `errors` under `costs`, down to an objective of `target`."""

    def __init__(self, errors: Rows, costs: tuple[ExpectedCost, ...], target: float) -> None:
        self._errors = errors
        self._costs = costs
        self._target = target
        self._sizes = [len(e) for e in errors]
        self._span = sum(float(np.ptp(e)) for e in errors)
        self._sets = independent_sets(costs)
        self._tried: set[bytes] = set()

    def objective(self, rows: Sequence[FloatArray]) -> float:
        """Return the expected potential error."""
        return sum(float(e @ p) for e, p in zip(self._errors, rows, strict=True))

    def improve_narrowest(self) -> Rows:
        """Return rows improved from the narrowest candidate, which satisfies the budget."""
        rows = self.improve(one_hot(np.zeros(len(self._sizes), dtype=np.int64), self._sizes))
        assert rows is not None, "the narrowest candidate satisfies the budget"
        return rows

    def improve_best(self, best: Rows, starts: Iterable[IntArray]) -> Rows:
        """Return the best of `best` and the rows found from all starts, each improved starting with every set.

        Stops early at the target.
        """
        for start in starts:
            known = start.tobytes() in self._tried
            self._tried.add(start.tobytes())
            for first in range(0 if known else min(len(self._sets), _FIRST_SETS)):
                if self.objective(best) <= self._target:
                    return best
                rows = self.improve(one_hot(start, self._sizes), first)
                if rows is not None and self.objective(rows) < self.objective(best):
                    best = rows
        return best

    def improve(self, rows: Rows, first: int = 0) -> Rows | None:
        """Return the local optimum from `rows`, which may exceed the budget; None if no single set can repair that."""
        current = list(rows)
        feasible = self._satisfies(current)
        last = self.objective(current) if feasible else np.inf
        for _ in range(_SWEEPS):
            # Different first sets end in different local optima.
            for members in (*self._sets[first:], *self._sets[:first]):
                feasible = self._improve_set(current, members) or feasible
            if not feasible:
                return None
            value = self.objective(current)
            if last - value <= 1e-6 * self._span:
                break
            last = value
        return tuple(current)

    def _satisfies(self, rows: Sequence[FloatArray]) -> bool:
        return all(cost(rows) <= 1 + _ROUNDING for cost in self._costs)

    def _improve_set(self, rows: list[FloatArray], members: Sequence[int]) -> bool:
        """Solve the linear programme of one independent set in place; return whether it has a solution."""
        errors = self._pad([self._errors[g] for g in members])  # (members, choices)
        gradients = [[cost.gradient(rows, g) for g in members] for cost in self._costs]
        slopes = np.stack([self._pad(of_cost) for of_cost in gradients])  # (costs, members, choices)
        spent = [sum(float(s @ rows[g]) for s, g in zip(d, members, strict=True)) for d in gradients]
        offsets = np.array([cost(rows) - 1 - value for cost, value in zip(self._costs, spent, strict=True)])
        member = np.arange(len(members))

        def cut(indices: IntArray) -> Cut:
            return Cut(float(errors[member, indices].sum()), offsets + slopes[:, member, indices].sum(axis=1), indices)

        def oracle(multipliers: FloatArray) -> tuple[float, Cut]:
            found = cut(np.argmin(errors + np.tensordot(multipliers, slopes, axes=1), axis=1))
            return found.objective + float(multipliers @ found.slack), found

        cheapest = cut(np.argmin(slopes.sum(axis=0), axis=1))
        if (cheapest.slack > _ROUNDING).any():
            return False
        self._mix(rows, members, maximise_dual(oracle, [cheapest], 1e-9 * self._span))
        return True

    def _pad(self, vectors: Sequence[FloatArray]) -> FloatArray:
        """Stack vectors as rows of one array, padded with a value that no minimum takes."""
        table = np.full((len(vectors), max(self._sizes)), _NEVER)
        for row, vector in zip(table, vectors, strict=True):
            row[: len(vector)] = vector
        return table

    def _mix(self, rows: list[FloatArray], members: Sequence[int], dual: DualMaximum) -> None:
        for number, g in enumerate(members):
            row = np.zeros(self._sizes[g])
            for weight, cut in zip(dual.weights, dual.cuts, strict=True):
                row[cut.point[number]] += weight  # type: ignore[index]
            rows[g] = row / row.sum()


def independent_sets(costs: Sequence[ExpectedCost]) -> list[list[int]]:
    """Return maximal sets of groups whose members share no factor, by greedy colouring; sets may overlap."""
    count = len(costs[0].unary)
    neighbours = [set().union(*(cost.neighbours(g) for cost in costs)) for g in range(count)]
    sets: list[list[int]] = []
    for g in sorted(range(count), key=lambda g: -len(neighbours[g])):
        home = next((s for s in sets if not neighbours[g].intersection(s)), None)
        if home is None:
            sets.append([g])
        else:
            home.append(g)
    # Colouring assigns each group once. Groups that fit into further sets are added, so that a sweep moves them more
    # often.
    for members in sets:
        for g in range(count):
            if g not in members and not neighbours[g].intersection(members):
                members.append(g)
    return [sorted(members) for members in sets]
