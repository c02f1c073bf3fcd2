"""Which of the best candidates to train, given that their scores are noisy.

Notation: `a` the score of a candidate on `n` validation images, `b` that on `m` fresh ones, `s` the standard error of
`b`. The pooled score `(n a + m b) / (n + m)` has a standard error of about `s * sqrt(m / (n + m))`. Candidates within
one standard error of the best pooled score cannot be told apart; of these the one with the most MACs is trained, since
a budget is there to be used and weights of its own serve a wider network better than shared ones.

Where finalists were fine-tuned for longer before `b` than before `a`, `b` is the better measure, and the widths have
had weights of their own: the best by `b` is trained. It is spent on finalists that differ from each other, since a
search ends among many near copies of its best, which no measure tells apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnet.searchers import Candidate, Rescored
from bcnet.space import Widths, WidthSpace

_INTERVAL = 2 * 1.96  # standard errors across a 95 % interval


@dataclass(frozen=True)
class Choice:
    """The widths to train, and the second scores of all finalists, best first.

    The second scores alone carry an interval: the first ones were selected for being high.
    """

    widths: Widths
    rescored: tuple[Rescored, ...]
    fresh_images: int


def finalists(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """The `count` best by score, of equals those with more MACs; none that was stopped early."""
    return sorted((c for c in candidates if c.complete), key=lambda c: (-c.score, -c.cost.macs))[:count]


def apart(candidates: Sequence[Candidate], count: int, space: WidthSpace, distance: float) -> list[Candidate]:
    """The `count` best of which each differs from all better ones by `distance`: the groups' mean in width ratio."""
    best = finalists(candidates, len(candidates))
    ratios = np.array([c.widths for c in best]).reshape(len(best), len(space.full)) / space.full
    kept: list[int] = []
    for number, ratio in enumerate(ratios):
        if len(kept) < count and np.all(np.abs(ratios[kept] - ratio).mean(axis=1) >= distance):
            kept.append(number)
    return [best[number] for number in kept]


def choice(rescored: Sequence[Rescored], validation_images: int, fresh_images: int) -> Choice:
    """The finalist with the most MACs among those that cannot be told from the best."""
    total = validation_images + fresh_images

    def pooled(r: Rescored) -> float:
        return (r.candidate.score * validation_images + r.score * fresh_images) / total

    best = max(rescored, key=lambda r: (pooled(r), r.candidate.cost.macs))
    error = (best.high - best.low) / _INTERVAL * math.sqrt(fresh_images / total)
    equal = [r for r in rescored if pooled(r) >= pooled(best) - error]
    chosen = max(equal, key=lambda r: (r.candidate.cost.macs, pooled(r)))
    return Choice(chosen.candidate.widths, tuple(rescored), fresh_images)


def best_again(rescored: Sequence[Rescored], fresh_images: int) -> Choice:
    """The finalist with the best second score; of equals that with the most MACs."""
    best = max(rescored, key=lambda r: (r.score, r.candidate.cost.macs))
    return Choice(best.candidate.widths, tuple(rescored), fresh_images)
