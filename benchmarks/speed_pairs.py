"""Pairs: a training step whose complementary paths share a pass, against the same step by slices.

These figures are what `bcnet.supernet.pairs.are_worthwhile` goes by. Both ways take steps on widths drawn anew in every
round, after steps on others that meet the shapes which recur.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed_steps import OTHERS
from benchmarks.speed_turns import Call, Figure, Pace, in_turns
from benchmarks.speed_workloads import Steps, Workload

WAYS = {"pairs": True, "slices": False}
WARM = 20  # steps


def figures(work: Workload, pace: Pace) -> Iterator[Figure]:
    """The time of a step by slices in units of one in pairs, and the latter in seconds."""
    own = work.chosen
    ways = {way: Steps(work.supernet_learner(own, pairs=on), work, own) for way, on in WAYS.items()}
    for number in range(WARM if pace.seconds else 0):
        ways["pairs"].take(work.terms(2 * OTHERS + number))

    def arms(number: int) -> dict[str, tuple[Call, Call]]:
        terms = work.terms(number)
        others = work.terms(OTHERS + number)
        return {
            way: (lambda steps=steps: steps.take(others), lambda steps=steps: steps.take(terms))  # type: ignore[misc]
            for way, steps in ways.items()
        }

    turns = in_turns(arms, pace)
    yield turns.ratio("step by slices / step in pairs", "slices", "pairs")
    yield turns.figure(f"step in pairs ({own})", "pairs")
