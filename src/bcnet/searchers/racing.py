"""Racing: a candidate that cannot be retained is stopped after a part of the batches, the rest is scored on all.

Notation: a score is the mean of its values `s[1..B]` on `B` equal batches, each the mean over both sides; batch norm
couples the images of a batch, so that batches, not images, are the units of evidence. The candidates of a generation
are scored in rounds, in each on some more batches, the same for all. After `n` of them, with `r` the mean over those
still in the race and those held from before, a candidate has the differences `d[i] = s[i] - r[i]`, of mean `m` and
standard deviation `v`: pairing takes out how hard a batch is. The batches left are part of the same finite set, so that
its score on all of them is estimated by `e` and bounded by `u`,

    e = score(r) + m,    u = e + t v sqrt((1 / n) (1 - n / B))

with `t` the quantile of Student's distribution of `n - 1` degrees of freedom at `1 - level`. The searcher says whom it
would retain. A candidate is stopped where it is not among them, neither at `e` nor at `u`, all others being at their
estimates. At the end of the race whoever was never stopped has the score of exhaustive scoring.

Decisions fall between rounds, when all scores of a round are known: they do not depend on who found them.

Source: Maron and Moore, "Hoeffding races", NIPS 1993; with Student's bound: Birattari et al., "A racing algorithm for
configuring metaheuristics", GECCO 2002; finite sets: Cochran, "Sampling techniques", 1977, section 2.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from bcnet.errors import SearchError
from bcnet.searchers.problem import BoolArray, FloatArray, IntArray
from bcnet.space import Widths

DEFAULT_LEVEL = 0.05
LEAST_BATCHES = 8  # with fewer there is nothing to save
_GROWTH = 1.4  # of the batches from one look to the next

Retained = Callable[[FloatArray, IntArray], BoolArray]
Ask = Callable[[Sequence[int], int, int], Sequence[Sequence[float]]]


class Contest(list[Widths]):
    """A generation of candidates, with what decides who of them is retained.

    A searcher yields it in place of a plain list. `held` are widths retained so far, in competition with the
    candidates; `retained(scores, members)` says for scores `(cases, members)` who would be retained of these members,
    by number, first those held, then the candidates; in every case for itself, as booleans of the same shape. The
    searcher may be sent `nan` for a candidate that was stopped because it would not be.
    """

    def __init__(self, candidates: Iterable[Widths], held: Iterable[Widths], retained: Retained) -> None:
        super().__init__(candidates)
        self.held, self.retained = tuple(held), retained


@runtime_checkable
class BatchScore(Protocol):
    """A score that is the mean of its values on `batches` equal batches; a `SupernetEvaluator` is one."""

    @property
    def batches(self) -> int:
        """How many there are."""

    def on_batch(self, widths: Widths, number: int, /) -> float:
        """The score on one batch; higher is better."""


class Outcome(NamedTuple):
    """What came of a candidate: its score on all batches, or where it was stopped the estimate of that.

    `batches` are the scores on the batches met, `upper` is the bound on the score of one that was stopped.
    """

    score: float
    batches: Sequence[float]
    upper: float | None


@dataclass(frozen=True)
class Race:
    """When a candidate is stopped.

    `level` is the chance at which the bound of one candidate at one look errs, were the batches drawn at random and
    their differences normal. The first look is after `first` batches, of which 2 are the least that have a standard
    deviation; from one look to the next there are 1.4 times as many.

    Example: `search_widths(space, evaluator, budget, early_stop=Race())`.

    Raises:
        SearchError: a setting out of range.
    """

    level: float = DEFAULT_LEVEL
    first: int = 4

    def __post_init__(self) -> None:
        if not 0 < self.level <= 0.5:
            raise SearchError(f"the level of early stopping is a chance above 0, at most 0.5; got {self.level!r}")
        if self.first < 2:
            raise SearchError(f"early stopping looks after two batches at the earliest; got first {self.first!r}")

    def looks(self, batches: int) -> list[int]:
        """After how many batches is decided, the last being all of them.

        Example: `Race().looks(40) == [4, 6, 9, 13, 19, 27, 40]`.
        """
        looks = [min(self.first, batches)]
        while looks[-1] < batches:
            looks.append(min(batches, math.ceil(_GROWTH * looks[-1])))
        return looks

    def run(self, ask: Ask, retained: Retained, held: FloatArray, count: int) -> list[Outcome]:
        """Race `count` candidates against each other and `held`, scores `(held, batches)` of those from before.

        `ask(candidates, start, stop)` gives the scores of these candidates, by number, on the batches from `start` up
        to `stop`.
        """
        scores = np.full((count, held.shape[1]), np.nan)
        widths_of_bounds = np.full(count, np.nan)
        running, done = np.arange(count), 0
        for look in self.looks(held.shape[1]):
            if len(running):
                scores[running, done:look] = ask(running.tolist(), done, look)
            done = look
            if look < held.shape[1] and len(running):
                half = self.half_widths(scores[running, :look], held)
                estimate = np.concatenate([held.mean(axis=1), estimates(scores[running, :look], held)])
                members = np.concatenate([np.arange(len(held)), len(held) + running])
                goes_on = _could_be_retained(retained, members, estimate, half)
                widths_of_bounds[running[~goes_on]] = half[~goes_on]
                running = running[goes_on]
        whole = np.concatenate([held, scores[running]])
        return [_outcome(row, half, whole) for row, half in zip(scores, widths_of_bounds.tolist(), strict=True)]

    def half_widths(self, met: FloatArray, held: FloatArray) -> FloatArray:
        """How far above its estimate each score may be, of scores `met` `(candidates, n)`; shape `(candidates,)`."""
        from scipy.special import stdtrit  # a tenth of a second to import, and needed by races only

        n, batches = met.shape[1], held.shape[1]
        spread = (met - _reference(met, held)).std(axis=1, ddof=1)
        quantile = float(stdtrit(n - 1, 1 - self.level))
        return np.asarray(quantile * spread * math.sqrt((1 - n / batches) / n))


def estimates(met: FloatArray, held: FloatArray) -> FloatArray:
    """Scores on all batches, estimated from those on the first, `met` `(candidates, n)`; shape `(candidates,)`.

    With nobody held they are estimates up to a number that all candidates have in common.
    """
    shift = held.mean() - held[:, : met.shape[1]].mean() if len(held) else 0.0
    return np.asarray(met.mean(axis=1) + shift)


def _reference(met: FloatArray, held: FloatArray) -> FloatArray:
    return np.asarray(np.concatenate([held[:, : met.shape[1]], met]).mean(axis=0))  # (n,)


def _could_be_retained(retained: Retained, members: IntArray, estimate: FloatArray, half: FloatArray) -> BoolArray:
    """Who of the last `len(half)` members would be retained at the estimate, or at the bound, the others as estimated.

    `members` and `estimate` are those held, and then the candidates that are still in the race.
    """
    count = len(half)
    rows, mine = np.arange(count), len(members) - count + np.arange(count)
    at_bound = np.tile(estimate, (count, 1))  # case by case another one at its bound
    at_bound[rows, mine] += half
    verdicts = retained(np.concatenate([estimate[None], at_bound]), members)
    return np.asarray(verdicts[0, mine] | verdicts[1 + rows, mine])


def _outcome(row: FloatArray, half: float, whole: FloatArray) -> Outcome:
    """The outcome of a candidate with the scores `row`, nan where not met, `whole` being the scores of all others."""
    met = row[np.isfinite(row)]
    if len(met) == len(row):
        return Outcome(mean(met), met.tolist(), None)
    estimate = float(met.mean() + whole.mean() - whole[:, : len(met)].mean())
    return Outcome(estimate, met.tolist(), estimate + half)


def mean(values: Sequence[float] | FloatArray) -> float:
    """The score of a candidate from those on all batches."""
    return float(np.mean(np.asarray(values, dtype=np.float64)))


def checked(race: Race, score: object) -> BatchScore:
    """The score as one that can be raced.

    Raises:
        SearchError: it is not made of batches.
    """
    if not isinstance(score, BatchScore):
        raise SearchError(
            f"early stopping needs a score made of batches, as SupernetEvaluator is; got {type(score).__name__} for "
            f"{race}: leave early_stop out"
        )
    return score
