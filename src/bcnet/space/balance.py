"""Balanced widths: a closed form that depends on neither data nor weights.

Notation: `m_l(c)` are the multiply-adds of layer `l` at widths `c`, `a_l` the number of positions at which its weights
are applied (multiply-adds over parameters), and `p` the exponent. The default 0.5 is halfway between both ends; it was
not tuned. Balanced widths

    maximise  sum_l a_l^p log m_l(c)   under the budget.

If no width is at its bound and the budget is on multiply-adds, each layer gets a share of them proportional to `a_l^p`:
with `p = 0` all layers have equal multiply-adds, with `p = 1` equal parameters.

In `u = log c` every `log m_l`, and the logarithm of every cost, is a log-sum-exp of linear functions. For networks
without concatenations the objective is linear and the programme convex.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bcnet.costs import MEASURES, Budget, Polynomial
from bcnet.errors import BudgetError, WidthError
from bcnet.space.space import Widths, WidthSpace

FloatArray = npt.NDArray[np.float64]

_BISECTIONS = 30


@dataclass(frozen=True)
class LogSum:
    """`log sum_k exp(offsets[k] + powers[k] . u)`: a polynomial with positive coefficients, in logarithms."""

    offsets: FloatArray  # (terms,)
    powers: FloatArray  # (terms, groups)

    @classmethod
    def of(cls, polynomial: Polynomial, groups: int) -> LogSum:
        """Return the log-sum-exp of a polynomial, with or without a constant, in this number of groups."""
        terms = polynomial.terms
        powers = np.zeros((len(terms), groups))
        for row, members in enumerate(terms):
            for group in members:
                powers[row, group] += 1
        return cls(np.log(np.array(list(terms.values()), dtype=np.float64)), powers)

    def __call__(self, u: FloatArray) -> tuple[float, FloatArray]:
        """Return value and gradient `(groups,)` at `u`."""
        exponents = self.offsets + self.powers @ u
        highest = exponents.max()
        shares = np.exp(exponents - highest)
        total = shares.sum()
        return float(highest + np.log(total)), shares @ self.powers / total


def balanced_widths(space: WidthSpace, budget: Budget, exponent: float) -> Widths:
    """Return the balanced widths of `space` under `budget` (see `WidthSpace.balanced`)."""
    if isinstance(exponent, bool) or not isinstance(exponent, int | float) or not 0 <= exponent <= 2:
        raise WidthError(
            f"the exponent of balanced widths must be a number from 0 to 2; got {exponent!r}: 0.5 is usual"
        )
    measured = space.with_measures(budget)
    limits = budget.resolve(measured.reference)
    least = space.floor([0.0] * len(space.groups))
    if not limits.admits(measured.cost(least)):
        raise BudgetError(
            f"a budget must admit the narrowest network, {measured.cost_text(least)}; got {limits}: raise the budget"
        )
    layers = weighted_layers(space, exponent)
    widths = space.floor(optimum(space, layers, limits, 1.0))
    if not limits.admits(measured.cost(widths)):
        # For a measure that is not a polynomial: balance under a tighter budget, as loose as the measure allows.
        low = 0.0
        high = 1.0
        widths = least
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            tried = space.floor(optimum(space, layers, limits, middle))
            if limits.admits(measured.cost(tried)):
                low = middle
                widths = tried
            else:
                high = middle
    return _filled_up(measured, widths, layers, limits)


def weighted_layers(space: WidthSpace, exponent: float) -> list[tuple[float, LogSum]]:
    """Return `a_l^p` and `log m_l` of each layer whose multiply-adds depend on widths; weights sum to one."""
    found = []
    full = np.array([space.original_widths])
    for layer in space.layers:
        positions = layer.positions(full)
        if positions and any(layer.macs.terms):
            found.append((positions**exponent, LogSum.of(layer.macs, len(space.groups))))
    total = sum(weight for weight, _ in found)
    return [(weight / total, log_macs) for weight, log_macs in found]


def optimum(
    space: WidthSpace,
    layers: Sequence[tuple[float, LogSum]],
    limits: Budget,
    tightness: float,
    least: Sequence[int] | None = None,
) -> FloatArray:
    """Return the real widths `(groups,)` that maximise a weighted sum, under `tightness` times the polynomial limits.

    Args:
        space: the width space.
        layers: weights of at least 0, each with its term.
        limits: the budget in absolute counts.
        tightness: share of the limits that may be used.
        least: the narrowest widths; by default the narrowest that the groups run at.

    """
    from scipy.optimize import minimize  # takes a tenth of a second to import

    count = len(space.groups)
    low = np.log([group.least for group in space.groups] if least is None else least)
    high = np.log([group.max_width for group in space.groups])
    polynomials = [
        (terms, limit)
        for measure, limit in limits.limits.items()
        if measure.name in MEASURES  # others only need their values
        for terms in measure.constraints(space)
        if isinstance(terms, Polynomial)
    ]
    bounds = [(LogSum.of(terms, count), limit) for terms, limit in polynomials]
    if not bounds:
        bounds = [(LogSum.of(space.macs_terms, count), int(space.reference.macs))]
    constraints = [
        {
            "type": "ineq",
            "fun": lambda u, cost=cost, limit=limit: math.log(tightness * limit) - cost(u)[0],
            "jac": lambda u, cost=cost: -cost(u)[1],
        }
        for cost, limit in bounds
    ]

    def loss(u: FloatArray) -> tuple[float, FloatArray]:
        parts = [(weight, *log_macs(u)) for weight, log_macs in layers]
        slope: FloatArray = -np.sum([weight * gradient for weight, _, gradient in parts], axis=0)
        return -sum(weight * value for weight, value, _ in parts), slope

    # Start from uniform widths that satisfy the limits: an interior point with every group positive.
    start = high.copy()
    share = 1.0
    while any(cost(start)[0] > math.log(tightness * limit) for cost, limit in bounds) and share > 1e-6:
        share *= 0.9
        start = np.maximum(low, high + math.log(share))
    found = minimize(
        loss,
        start,
        jac=True,
        bounds=list(zip(low, high, strict=True)),
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-10},
    )
    widths: FloatArray = np.exp(np.clip(found.x, low, high))
    return widths


def _filled_up(space: WidthSpace, widths: Widths, layers: Sequence[tuple[float, LogSum]], limits: Budget) -> Widths:
    """Widen groups with the budget left by rounding down, in order of gain per multiply-add, while it fits."""
    current = list(widths)
    while True:
        here = int(space.cost(tuple(current)).macs)
        # The objective's gradient in log width: what widening a group by one step gains, to first order.
        slope = np.sum([weight * log_macs(np.log(current))[1] for weight, log_macs in layers], axis=0)
        wider = []
        for number, group in enumerate(space.groups):
            if current[number] == group.max_width:
                continue
            tried = list(current)
            tried[number] = group.wider(current[number])
            cost = space.cost(tuple(tried))
            if limits.admits(cost):
                gain = slope[number] * math.log(tried[number] / current[number])
                wider.append((gain / max(int(cost.macs) - here, 1), -number, tried))
        if not wider:
            return tuple(current)
        current = max(wider)[2]
