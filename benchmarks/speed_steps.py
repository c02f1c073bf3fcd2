"""A training step: four paths as slices of one set of weights, against what else could train four widths.

Rivals, all timed in the same rounds on the same batch:

- the same four networks, built as plain modules, of our layout and precision; they have met their shapes before they
  are timed, since a network of its own keeps its widths, while our step meets new widths in every round (the same step
  is timed once more, to tell what compiling operators for new shapes takes);
- the full network, of our layout and precision and in whichever is its fastest;
- a supernet that masks (`speed_masked`) in that fastest layout and precision, since its passes are full-width ones.

Every step ends with an update of all weights it has gradients for. Ours begins with some steps on other widths, as a
training of thousands of steps has behind it nearly always: a pass for two paths has few shapes, which recur, and after
these steps it has met most of them. Before it is timed each thing takes a step that is not, ours on other widths again:
so that it finds the memory of the process as in a training of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch import nn

from bcnet.machine.timing import prepare_nothing
from bcnet.supernet import build
from bcnet.supernet.pairs import are_worthwhile
from bcnet.train import Complementary, NetworkLearner
from bcnet.train.step import Term
from benchmarks.speed_masked import MaskedTrainee, Way
from benchmarks.speed_turns import Call, Figure, Pace, Turns, in_turns
from benchmarks.speed_workloads import VARIANTS, Steps, Variant, Workload

OURS = "ours"
AGAIN = "ours again"
STANDALONE = "four standalone"
FULL = "full"
FASTEST = "fastest full"
DRAWS = 2000
OTHERS = 1_000_000  # numbers of steps on other widths
WARM = 40  # steps
WAYS: tuple[Way, ...] = ("feature maps", "scale and shift")


def figures(work: Workload, pace: Pace) -> Iterator[Figure]:
    """How long a step of ours takes, and how long in units of the rivals'."""
    own = work.chosen
    best = fastest(work, Pace(pace.seconds / 8, 2))
    turns = in_turns(Arms(work, own, best, WARM if pace.seconds else 0), pace, device=work.device)
    yield turns.figure(f"step ({own})", OURS)
    yield turns.ratio("step / four standalone", OURS, STANDALONE)
    yield turns.ratio("step on widths met before / step", AGAIN, OURS)
    yield turns.ratio("step / four full-width steps", OURS, FULL, times=4)
    yield turns.ratio("step / fastest full-width step", OURS, FASTEST)
    yield turns.figure(f"fastest full-width step ({best})", FASTEST)
    for way in WAYS:
        yield turns.ratio(f"step of masked {way} / step", way, OURS)
    if are_worthwhile(work.space, work.batch):
        yield from figures_of_pairs(work, turns)


def figures_of_pairs(work: Workload, turns: Turns) -> Iterator[Figure]:
    """What groups cost that are full on both paths of a pass and so appear in it twice (`bcnet.supernet.pairs`)."""
    pairs = [_pair(work, number) for number in range(DRAWS)]
    doubled = (np.array(pairs) > np.array(work.space.full)).any(axis=1)
    macs = work.space.macs_terms(np.array(pairs)) / work.space.reference.macs
    yield Figure.single("steps with a doubled group", float(doubled.mean()), "ratio")
    yield Figure.single("mean multiply-adds of a pair / full network", float(macs.mean()), "ratio")
    single = ~doubled[: len(turns.seconds(OURS))]
    if single.any():
        yield turns.ratio("step without a doubled group / fastest full-width step", OURS, FASTEST, among=single)


def _pair(work: Workload, number: int) -> list[int]:
    """Widths of the network that runs a pair of the step's paths."""
    drawn = work.terms(number)[0].recorded
    return [c + d for c, d in zip(drawn, work.space.complement(drawn), strict=True)]


def fastest(work: Workload, pace: Pace) -> Variant:
    """The layout and precision that the full network takes its steps fastest in."""
    steps = {variant: _steps_of(work, work.fresh(variant), variant) for variant in VARIANTS}
    arms = {str(variant): (prepare_nothing, steps[variant].take) for variant in VARIANTS}
    turns = in_turns(lambda number: arms, pace, device=work.device)
    return next(variant for variant in VARIANTS if str(variant) == turns.fastest())


class Arms:
    """What a round compares: our step first, on widths drawn for the round."""

    def __init__(self, work: Workload, own: Variant, best: Variant, warm: int) -> None:
        self._work = work
        self._own = own
        self._ours = Steps(work.supernet_learner(own), work, own)
        for number in range(warm):
            self._ours.take(work.terms(2 * OTHERS + number))
        self._full = _steps_of(work, work.fresh(own), own)
        self._fastest = _steps_of(work, work.fresh(best), best)
        masked = {way: MaskedTrainee(work.fresh(best), work.space, Complementary(), way) for way in WAYS}
        self._masked = {way: Steps(learner, work, best) for way, learner in masked.items()}
        self._standalone: list[Steps] = []

    def __call__(self, number: int) -> dict[str, tuple[Call, Call]]:
        """The things of a round."""
        terms = self._work.terms(number)
        others = self._work.terms(OTHERS + number)
        return {
            OURS: (lambda: self._ours.take(others), lambda: self._ours.take(terms)),
            AGAIN: (prepare_nothing, lambda: self._ours.take(terms)),
            STANDALONE: (lambda: self._build(terms), self._take_standalone),
            FULL: _twice(self._full.take),
            FASTEST: _twice(self._fastest.take),
            **{way: _twice(lambda steps=steps: steps.take(terms)) for way, steps in self._masked.items()},  # type: ignore[misc]
        }

    def _build(self, terms: Sequence[Term]) -> None:
        built = [build(self._work.model, self._work.space, path.widths) for term in terms for path in term.paths]
        self._standalone = [_steps_of(self._work, network, self._own) for network in built]
        self._take_standalone()

    def _take_standalone(self) -> None:
        for steps in self._standalone:
            steps.take()


def _twice(call: Call) -> tuple[Call, Call]:
    return call, call


def _steps_of(work: Workload, network: nn.Module, variant: Variant) -> Steps:
    return Steps(NetworkLearner(network), work, variant)
