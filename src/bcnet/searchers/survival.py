"""Whom NSGA-II retains, for many cases at once: rank first, crowding within the front that has not room for all.

Notation: scores are `(cases, pool)`, higher being better; MACs `(pool,)`, lower being better. One candidate dominates
another where it is no worse in both and better in one. Front 0 is dominated by nobody, front `k` by members of earlier
fronts only. The crowding distance of a member is the sum over both objectives of the distance between its neighbours in
the front, as a share of the front's range; those at either end are infinitely far.

Source: Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from bcnet.space.problem import BoolArray, FloatArray, IntArray

Tournament = Literal["score", "rank"]  # what wins it among those retained


def retained(scores: FloatArray, members: IntArray, macs: IntArray | FloatArray, keep: int) -> BoolArray:
    """Which `keep` of the pool are retained in each case, shape `(cases, pool)`; of equal distances the first.

    `macs` are those of the `members`, by number, and of others; any cost does.
    """
    macs = macs[members]
    no_worse = (scores[:, :, None] >= scores[:, None, :]) & (macs[:, None] <= macs)  # (cases, by whom, who)
    dominated_by = no_worse & ~no_worse.transpose(0, 2, 1)
    chosen = np.zeros(scores.shape, dtype=bool)
    left = np.full(len(scores), min(keep, scores.shape[1]))
    alive = np.ones(scores.shape, dtype=bool)
    while left.any():
        front = alive & ~(dominated_by & alive[:, :, None]).any(axis=1)
        sizes = front.sum(axis=1)
        chosen |= front & (sizes <= left)[:, None]
        for case in np.flatnonzero((sizes > left) & (left > 0)):
            members = np.flatnonzero(front[case])
            distance = crowding(np.stack([scores[case, members], macs[members].astype(np.float64)]))
            chosen[case, members[np.argsort(-distance, kind="stable")[: left[case]]]] = True
        alive &= ~front
        left = np.maximum(left - sizes, 0)
    return chosen


def crowding(objectives: FloatArray) -> FloatArray:
    """Crowding distances within one front of `objectives` `(2, members)`; shape `(members,)`."""
    total = np.zeros(objectives.shape[1])
    for values in objectives:
        order = np.argsort(values, kind="stable")
        steps = np.diff(values[order], prepend=-np.inf, append=np.inf)
        span = values[order[-1]] - values[order[0]]
        total[order] += (steps[1:] + steps[:-1]) / (span if span > 0 else 1.0)
    return total
