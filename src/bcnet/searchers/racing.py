"""Racing: a candidate that cannot be retained is stopped after a part of the batches, the rest is scored on all.

Notation: a score is the mean of its values `s[1..B]` on `B` equal batches, each the mean over both sides; batch norm
couples the images of a batch, so that batches, not images, are the units of evidence. The candidates of a generation
are scored in rounds, in each on some more batches, the same for all. After `n` of them, with `r` the mean over those
still in the race and those held from before, a candidate has the differences `d[i] = s[i] - r[i]`, of mean `m`:
pairing takes out how hard a batch is. Candidates are much alike in how they scatter about `r`, so that they share one
variance `v`, pooled over all `k` still in the race. The batches left are part of the same finite set: a score on all of
them is estimated by `e`, and bounded beside another one's estimate by `u(level)`,

    e = score(r) + m,    u(level) = e + t sqrt(2 v (1 / n) (1 - n / B))

with `t` the quantile of Student's distribution of `k (n - 1)` degrees of freedom at `1 - level`. A candidate stays in
the race where it could be retained, as the searcher says for its estimate and for its bound at a lenient level, or
where it could be the best of all, for its bound at a strict level is no lower than any estimate. Who is retained beside
the best matters less, and costs most. At the end of the race whoever was never stopped has the score of exhaustive
scoring.

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
from bcnet.space import Widths
from bcnet.space.problem import BoolArray, FloatArray, IntArray

DEFAULT_LEVEL = 0.1  # chosen in docs/early_stopping.md
LEAST_BATCHES = 8  # with fewer there is nothing to save
_GROWTH = 1.3  # of the batches from one look to the next

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
        self.held = tuple(held)
        self.retained = retained


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

    `level` is the chance at which one look takes the better of two candidates for worse and stops it, `lenience` that
    of the bound on being retained, were the batches drawn at random and differences normal. The first look is after
    `first` batches, of which 2 are the least that scatter; from one look to the next there are 1.3 times as many.

    Example: `search_widths(space, evaluator, budget, early_stop=Race())`.

    Raises:
        SearchError: a setting out of range.
    """

    level: float = DEFAULT_LEVEL
    lenience: float = 0.4
    first: int = 4

    def __post_init__(self) -> None:
        for name, value in (("level", self.level), ("lenience", self.lenience)):
            if not 0 < value <= 0.5:
                raise SearchError(f"the {name} of early stopping is a chance above 0, at most 0.5; got {value!r}")
        if self.first < 2:
            raise SearchError(f"early stopping looks after two batches at the earliest; got first {self.first!r}")

    def looks(self, batches: int) -> list[int]:
        """After how many batches is decided, the last being all of them.

        Example: `Race().looks(20) == [4, 6, 8, 11, 15, 20]`.
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
        halves = np.full(count, np.nan)  # of the bound, at which each was stopped
        running = np.arange(count)
        done = 0
        for look in self.looks(held.shape[1]):
            if len(running):
                scores[running, done:look] = ask(running.tolist(), done, look)
            done = look
            if look < held.shape[1] and len(running):
                members = np.concatenate([np.arange(len(held)), len(held) + running])
                error = standard_error(scores[running, :look], held)
                goes_on = self._stays(retained, members, scores[running, :look], held, error)
                halves[running[~goes_on]] = error * self._quantile(self.level, look, len(running))
                running = running[goes_on]
        whole = np.concatenate([held, scores[running]])
        return [_outcome(row, half, whole) for row, half in zip(scores, halves.tolist(), strict=True)]

    def _stays(
        self, retained: Retained, members: IntArray, met: FloatArray, held: FloatArray, error: float
    ) -> BoolArray:
        """Which of the last members, with the scores `met` `(candidates, n)`, could still be retained or the best."""
        count, look = met.shape
        estimate = np.concatenate([held.mean(axis=1), estimates(met, held)])  # (members,)
        rows = np.arange(count)
        mine = len(held) + np.arange(count)
        # Retention depends on all scores at once: in each case one candidate is as good as it might be, the others as
        # they seem.
        at_bound = np.tile(estimate, (count, 1))
        at_bound[rows, mine] += error * self._quantile(self.lenience, look, count)
        verdicts = retained(np.concatenate([estimate[None], at_bound]), members)
        best = estimate[mine] + error * self._quantile(self.level, look, count) >= estimate.max()
        return np.asarray(verdicts[0, mine] | verdicts[1 + rows, mine] | best)

    def _quantile(self, level: float, look: int, candidates: int) -> float:
        from scipy.special import stdtrit  # a tenth of a second to import, and needed by races only

        return float(stdtrit(candidates * (look - 1), 1 - level))


def standard_error(met: FloatArray, held: FloatArray) -> float:
    """Of the difference of two estimates from scores `met` `(candidates, n)`, beside `held` `(held, batches)`."""
    n = met.shape[1]
    batches = held.shape[1]
    pool = np.concatenate([held[:, :n], met])  # (pool, n)
    share = max(1, len(pool) - 1) / len(pool)  # of a score's variance that its difference to the pool's mean has
    variance = float((met - pool.mean(axis=0)).var(axis=1, ddof=1).mean()) / share
    return math.sqrt(2 * variance * (1 - n / batches) / n)


def estimates(met: FloatArray, held: FloatArray) -> FloatArray:
    """Scores on all batches, estimated from those on the first, `met` `(candidates, n)`; shape `(candidates,)`.

    With nobody held they are estimates up to a number that all candidates have in common.
    """
    shift = held.mean() - held[:, : met.shape[1]].mean() if len(held) else 0.0
    return np.asarray(met.mean(axis=1) + shift)


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
