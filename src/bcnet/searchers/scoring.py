"""The one place where candidates are scored: within the budget, once each, up to the limit, checked and stored."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from bcnet.errors import BCNetError, SearchError
from bcnet.searchers.racing import Ask, BatchScore, Contest, Outcome, Race, checked, mean
from bcnet.searchers.result import Candidate
from bcnet.searchers.store import EvaluationStore
from bcnet.space import Cost, Widths
from bcnet.space.problem import Problem

_T = TypeVar("_T")
_R = TypeVar("_R")
Score = Callable[[Widths], float]
Callback = Callable[[Candidate, int, int], None]


@runtime_checkable
class PartScore(Protocol):
    """A score that is known on parts of its images as well; what they say of it is kept with the candidate."""

    def in_parts(self, widths: Widths, /) -> tuple[float, Sequence[float]]:
        """The score, and the scores on parts of equal size."""


class Mapper(Protocol):
    """The builtin `map`, or what does as it does: calls a function of every item, and gives the results in order.

    What the function raises is raised at its place in the order. `ProcessGroup.map` spreads the calls over processes,
    the `map` of an executor of `concurrent.futures` over threads.
    """

    def __call__(self, function: Callable[[_T], _R], items: Iterable[_T], /) -> Iterator[_R]:
        """Iterate over the results."""


class Evaluator:
    """Scores generations of candidates for one search and keeps every evaluation in order."""

    def __init__(
        self,
        problem: Problem,
        score: Score,
        *,
        limit: int,
        over_budget: bool = False,
        mapper: Mapper = map,
        race: Race | None = None,
    ) -> None:
        self.evaluations: list[Candidate] = []
        self._problem = problem
        self._score = score
        self._limit = limit
        self._over_budget = over_budget
        self._mapper = mapper
        self._race = race
        self._batches = None if race is None else checked(race, score)
        self._known: dict[Widths, Candidate] = {}
        self._store: EvaluationStore | None = None
        self._stored: dict[Widths, Candidate] = {}
        self._callback: Callback | None = None

    def attach(self, store: EvaluationStore | None, callback: Callback | None) -> None:
        """Replay from and write to `store`; report every evaluation to `callback`."""
        self._store = store
        self._callback = callback
        self._stored = {c.widths: c for c in store.evaluations} if store is not None else {}

    @property
    def exhausted(self) -> bool:
        """Whether the limit is reached."""
        return len(self.evaluations) >= self._limit

    def evaluate(self, candidates: Sequence[Widths]) -> list[float] | None:
        """Scores of a generation, nan for candidates that were stopped; None where the limit fell before its end.

        Raises:
            SearchError: a candidate over budget, or a score that is no finite number or raised.
        """
        fresh = [w for w in dict.fromkeys(candidates) if w not in self._known]
        within_limit = fresh[: self._limit - len(self.evaluations)]
        unknown = [w for w in within_limit if w not in self._stored]
        costs = self._costs(within_limit)
        outcomes = self._outcomes(candidates, unknown, raced=len(within_limit) == len(candidates))
        for widths, cost in zip(within_limit, costs, strict=True):
            stored = self._stored.get(widths)
            if stored is None:
                score, batches, upper = next(outcomes)
                self._add(Candidate(widths, score, cost, tuple(batches), upper), new=True)
            else:
                self._add(Candidate(widths, stored.score, cost, stored.batches, stored.upper), new=False)
        if len(within_limit) < len(fresh):
            return None
        met = [self._known[w] for w in candidates]
        return [c.score if c.complete else math.nan for c in met]

    def _outcomes(self, candidates: Sequence[Widths], unknown: list[Widths], *, raced: bool) -> Iterator[Outcome]:
        """Those of the `unknown` among the candidates, in order."""
        score = self._batches
        whole = self._score
        if isinstance(whole, PartScore) and score is None:
            found = self._mapped(lambda w: self._in_parts(whole, w), unknown)
            yield from (Outcome(s, parts, None) for s, parts in found)
        elif score is None:
            yield from (Outcome(s, (), None) for s in self._mapped(lambda w: self._call(whole, w), unknown))
        elif raced and unknown and self._race is not None and isinstance(candidates, Contest):
            before = [self._known[w].batches for w in candidates.held]
            held = np.array(before, dtype=np.float64).reshape(len(before), score.batches)
            outcomes = self._race.run(self._asking(candidates, score), candidates.retained, held, len(candidates))
            yield from (outcome for w, outcome in zip(candidates, outcomes, strict=True) if w not in self._stored)
        else:
            rows = self._mapped(lambda w: self._on_batches(score, w, range(score.batches)), unknown)
            yield from (Outcome(mean(row), row, None) for row in rows)

    def _asking(self, candidates: Sequence[Widths], score: BatchScore) -> Ask:
        """What gives a race its scores: the stored ones, as far as they go, and else those of the processes."""

        def ask(numbers: Sequence[int], start: int, stop: int) -> list[Sequence[float]]:
            wanted = [candidates[number] for number in numbers]
            stored = {w: self._stored[w].batches for w in wanted if w in self._stored}
            missing = [w for w in wanted if len(stored.get(w, ())) < stop]
            rows = self._mapped(lambda w: self._on_batches(score, w, range(start, stop)), missing)
            known = {w: batches[start:stop] for w, batches in stored.items()} | dict(zip(missing, rows, strict=True))
            return [known[w] for w in wanted]

        return ask

    def _mapped(self, function: Callable[[Widths], _R], items: list[Widths]) -> Iterator[_R]:
        results = iter(self._mapper(function, items))
        for _ in items:
            try:
                yield next(results)
            except StopIteration:
                raise SearchError(f"a mapper gives a score for every candidate; got fewer than {len(items)}") from None

    def _on_batches(self, score: BatchScore, widths: Widths, numbers: range) -> list[float]:
        return [self._call(score.on_batch, widths, number) for number in numbers]

    def _costs(self, candidates: Sequence[Widths]) -> list[Cost]:
        if not candidates:
            return []
        costs = self._problem.space.cost(np.array(candidates))
        admitted = self._problem.budget.admits(costs)
        if not self._over_budget and not np.all(admitted):
            wrong = candidates[int(np.argmin(admitted))]
            raise SearchError(
                f"a searcher proposes candidates within {self._problem.budget} only; got {wrong}: draw feasible "
                "widths, or set over_budget on the searcher"
            )
        return list(costs.each())

    def _add(self, candidate: Candidate, *, new: bool) -> None:
        if new and self._store is not None:
            self._store.add(candidate)
        self._known[candidate.widths] = candidate
        self.evaluations.append(candidate)
        if self._callback is not None:
            self._callback(candidate, len(self.evaluations), self._limit)

    def _in_parts(self, score: PartScore, widths: Widths) -> tuple[float, tuple[float, ...]]:
        value, parts = self._asked(score.in_parts, widths)
        return _checked(value, widths), tuple(_checked(part, widths) for part in parts)

    def _call(self, score: Callable[..., Any], widths: Widths, *batch: int) -> float:
        return _checked(self._asked(score, widths, *batch), widths)

    def _asked(self, score: Callable[..., Any], widths: Widths, *batch: int) -> Any:
        try:
            return score(widths, *batch)
        except BCNetError as error:
            raise SearchError(f"the score of widths {widths} failed: {error}") from error
        except Exception as error:
            raise SearchError(f"the score of widths {widths} raised {type(error).__name__}: {error}") from error


def _checked(value: Any, widths: Widths) -> float:
    """The score as a float, if it is a finite number (a zero-dimensional array or tensor counts as one)."""
    number = math.nan
    if not isinstance(value, (str, bytes, bool)):
        with contextlib.suppress(TypeError, ValueError):
            number = float(value)
    if not math.isfinite(number):
        raise SearchError(f"a score is a finite number, higher is better; widths {widths} got {value!r}: fix the score")
    return number
