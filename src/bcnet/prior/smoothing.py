"""Entropy-smoothed prior (spec, section 4).

Notation as in `qcqp`; `T` is the temperature, `H` the entropy in nats, `lam >= 0` a multiplier.

    minimise  sum_g P[g] . E[g] - T * H(P[g])   subject to   f_k(P) <= 1

Stationary points are Gibbs rows, `P[g](c) ~ exp(-(E[g](c) + lam . df/dP[g](c)) / T)`. For given `lam` and `T`, setting
one row after the other to this form minimises exactly over that row and never increases the Lagrangian. `lam` is found
by bisection between a value that violates the budget and one that satisfies it; returned rows always satisfy it. `T` is
found by bisection until the mean number of effective widths per group, `exp(H(P[g]))`, has the requested value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bcnet.prior.expected_cost import ExpectedCost, Rows
from bcnet.space.problem import FloatArray

_SWEEPS = 40
_STEPS = 40


def effective_widths(rows: Sequence[FloatArray]) -> float:
    """Return the mean of `exp(entropy)` over the groups: 1 for one choice, the number of choices for uniform rows."""
    return float(np.mean([np.exp(-np.sum(row[row > 0] * np.log(row[row > 0]))) for row in rows]))


class Smoothed:
    """Gibbs rows of given errors and costs; `direction` are the shares of the limits in the multiplier."""

    def __init__(self, errors: Rows, costs: tuple[ExpectedCost, ...], direction: FloatArray) -> None:
        self._errors = errors
        self._costs = costs
        total = direction.sum()
        self._direction = direction / total if total > 0 else np.full(len(costs), 1 / len(costs))
        self._span = max(sum(float(np.ptp(e)) for e in errors), 1e-12)

    def tighten(self, factor: float) -> Smoothed:
        """Return the same errors under limits that are `factor` times as tight."""
        return Smoothed(self._errors, tuple(cost.scale(factor) for cost in self._costs), self._direction)

    def load(self, rows: Rows) -> float:
        """Return the expected cost over its limit, the largest of several."""
        return max(cost(rows) for cost in self._costs)

    def _fixed_point(self, start: Rows, multiplier: float, temperature: float) -> Rows:
        rows = list(start)
        for _ in range(_SWEEPS):
            change = 0.0
            for g, error in enumerate(self._errors):
                slopes = zip(self._direction, self._costs, strict=True)
                # A Gibbs distribution of each group, given the others: coordinate descent on the free energy.
                energy = error + multiplier * sum(d * cost.gradient(rows, g) for d, cost in slopes)
                # Subtracting the minimum leaves the distribution unchanged and keeps exp from overflowing.
                weights = np.exp(-(energy - energy.min()) / temperature)
                row = weights / weights.sum()
                change = max(change, float(np.abs(row - rows[g]).max()))
                rows[g] = row
            if change < 1e-5:
                break
        return tuple(rows)

    def rows_at(self, temperature: float, narrow: Rows) -> Rows:
        """Return rows of one temperature whose expected cost uses up the budget, solving for the multiplier."""
        start = tuple(np.full(len(e), 1 / len(e)) for e in self._errors)
        rows = self._fixed_point(start, 0.0, temperature)
        if self.load(rows) <= 1:
            return rows
        low = 0.0
        high = self._span
        held = self._fixed_point(start, self._span, temperature)
        while self.load(held) > 1 and high < 1e9 * self._span:
            low = high
            high = 4 * high
            held = self._fixed_point(held, high, temperature)
        if self.load(held) > 1:
            return narrow
        for _ in range(_STEPS):
            if self.load(held) > 1 - 1e-4:
                break
            middle = (low + high) / 2
            rows = self._fixed_point(held, middle, temperature)
            if self.load(rows) <= 1:
                high = middle
                held = rows
            else:
                low = middle
        return held

    def with_effective_widths(self, target: float, narrow: Rows) -> tuple[Rows, float]:
        """Return rows with on average `target` effective widths per group, if possible, and their temperature."""
        scale = self._span / len(self._errors)
        low = np.log(1e-4 * scale)
        high = np.log(1e3 * scale)
        best = (np.inf, narrow, float(np.exp(low)))
        for _ in range(_STEPS // 2):
            middle = (low + high) / 2
            rows = self.rows_at(float(np.exp(middle)), narrow)
            found = effective_widths(rows)
            best = min(best, (abs(found - target), rows, float(np.exp(middle))), key=lambda b: b[0])
            if abs(found - target) < 0.01 * target:
                break
            low, high = (middle, high) if found < target else (low, middle)
        return best[1], best[2]
