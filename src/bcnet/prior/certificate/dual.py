"""Maximise a concave dual function over the multipliers of a few constraints, by cutting planes.

Notation: `theta(lam) = min over x of e(x) + lam . s(x)` with objective `e`, constraints `s <= 0` and `lam >= 0`. Every
visited point `x` gives a cut `theta(lam) <= e + lam . s`. With one constraint the next multiplier is where the last cut
that violates the constraint intersects the last one that satisfies it; with more it comes from a linear programme over
all cuts. Both reach the maximum after finitely many steps. The weights of the cuts that intersect there give the best
mixture of the points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bcnet.space.problem import FloatArray

_STEPS = 100
_HELD = 1e-9  # constraint values up to this count as satisfied


@dataclass(frozen=True)
class Cut:
    """A point with its objective `e` and its constraint values `s`, shape `(constraints,)`."""

    objective: float
    slack: FloatArray
    point: object


@dataclass(frozen=True)
class DualMaximum:
    """The largest dual value found, its multipliers `(constraints,)`, all cuts, and their mixture at the maximum."""

    bound: float
    multipliers: FloatArray
    cuts: tuple[Cut, ...]
    weights: FloatArray


Oracle = Callable[[FloatArray], tuple[float, Cut]]  # multipliers -> dual value and the cut there


def maximise_dual(oracle: Oracle, known: Sequence[Cut], tolerance: float) -> DualMaximum:
    """Maximise `theta`, given `known` cuts of which at least one satisfies every constraint.

    Stops when the cuts' maximum exceeds the best value by at most `tolerance`.
    """
    cuts = list(known)
    _, multipliers, _ = _master(cuts)
    bound = -np.inf
    best = multipliers
    for _ in range(_STEPS):
        value, cut = oracle(multipliers)
        cuts.append(cut)
        if value > bound:
            bound = value
            best = multipliers
        ceiling, multipliers, weights = _master(cuts)
        if ceiling - bound <= tolerance:
            break
    return DualMaximum(bound, best, tuple(cuts), weights)


def _master(cuts: Sequence[Cut]) -> tuple[float, FloatArray, FloatArray]:
    """Maximise the lowest cut over the multipliers; return value, multipliers, and weights of the cuts there."""
    objectives = np.array([cut.objective for cut in cuts])
    slacks = np.array([cut.slack for cut in cuts])  # (cuts, constraints)
    if slacks.shape[1] == 1:
        return _solve_single(objectives, slacks[:, 0])
    return _solve_several(objectives, slacks)


def _solve_single(objectives: FloatArray, slacks: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Intersect the lower envelope's cuts: mix one that satisfies the constraint with one that violates it."""
    held = np.flatnonzero(slacks <= _HELD)
    broken = np.flatnonzero(slacks > _HELD)
    weights = np.zeros(len(objectives))
    cheapest = held[np.argmin(objectives[held])]
    value = float(objectives[cheapest])
    multiplier = 0.0
    weights[cheapest] = 1.0
    if len(broken) == 0:
        return value, np.zeros(1), weights
    under = np.minimum(slacks[held], 0.0)[:, None]
    over = slacks[broken]
    share = -under / (over - under)  # share of the violating cut, (satisfying, violating)
    mixed = (1 - share) * objectives[held][:, None] + share * objectives[broken]
    i, j = np.unravel_index(int(np.argmin(mixed)), mixed.shape)
    if mixed[i, j] < value:
        first = held[i]
        second = broken[j]
        weights[:] = 0.0
        weights[first] = 1 - share[i, j]
        weights[second] = share[i, j]
        multiplier = (objectives[first] - objectives[second]) / (slacks[second] - min(slacks[first], 0.0))
        value = float(mixed[i, j])
    return value, np.array([multiplier]), weights


def _solve_several(objectives: FloatArray, slacks: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Solve min w . e subject to w . s <= 0, sum w = 1, w >= 0; the multipliers are the constraints' dual values."""
    from scipy.optimize import linprog  # takes half a second to import, and is needed for several limits only

    count = len(objectives)
    offset = objectives.min()
    scale = max(np.ptp(objectives), 1e-12)
    solution = linprog(
        (objectives - offset) / scale,
        A_ub=slacks.T,
        b_ub=np.full(slacks.shape[1], _HELD),
        A_eq=np.ones((1, count)),
        b_eq=[1.0],
        method="highs",
    )
    multipliers = np.maximum(-solution.ineqlin.marginals * scale, 0.0)
    value = float((objectives + slacks @ multipliers).min())
    return value, multipliers, np.maximum(solution.x, 0.0)
