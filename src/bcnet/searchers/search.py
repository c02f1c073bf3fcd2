"""The driver of every search.

A searcher is a generator of generations: it yields lists of candidates and is sent their scores. A search is therefore
a pure function of (space, budget, searcher, seed, scores), and resuming it replays the stored evaluations.

`Evaluator` is the only place that scores candidates: within the budget, each once, up to the limit, validated and
stored.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from bcnet.errors import BCNetError, SearchError
from bcnet.searchers.base import Proposals, Searcher
from bcnet.searchers.result import Candidate, SearchResult, summarise
from bcnet.searchers.store import EvaluationStore
from bcnet.space import Budget, Cost, Widths, WidthSpace
from bcnet.space.problem import Problem

_IDLE_GENERATIONS = 100  # generations without a new candidate after which the searcher counts as finished
_T = TypeVar("_T")
_R = TypeVar("_R")
Score = Callable[[Widths], float]
Callback = Callable[[Candidate, int, int], None]


@runtime_checkable
class PartScore(Protocol):
    """A score that also has values on parts of the images, which are stored with the candidate."""

    def in_parts(self, widths: Widths, /) -> tuple[float, Sequence[float]]:
        """Return the score, and the scores on parts of equal size."""


class Mapper(Protocol):
    """The builtin `map` or an equivalent: calls a function on every item and yields the results in order.

    An exception is raised at its place in the order. `ProcessGroup.map` spreads the calls over processes, and the `map`
    of an executor of `concurrent.futures` over threads.
    """

    def __call__(self, function: Callable[[_T], _R], items: Iterable[_T], /) -> Iterator[_R]:
        """Iterate over the results."""


def search_widths(
    space: WidthSpace,
    score: Score | Mapping[Widths, float],
    budget: Budget,
    *,
    searcher: Searcher | None = None,
    seed: int = 0,
    store: EvaluationStore | None = None,
    callback: Callback | None = None,
    mapper: Mapper = map,
) -> SearchResult:
    """Return the widths of `space` with the highest `score` under `budget`.

    `score(widths) -> float`, higher is better, is called once per candidate and never over budget (except by `Greedy`).
    It can also be a table `{widths: score}` that contains every feasible candidate. `searcher` defaults to
    `Evolution()`. Evaluations in `store` are not repeated, and new ones are added as they happen. `callback(candidate,
    done, limit)` is called after each. `mapper` computes the scores of a generation: the builtin `map` one after the
    other, others in parallel (see `Mapper`); the result does not depend on it. With the `map` of a `ProcessGroup` every
    process makes the same call, and each has its own store, or none.

    Raises:
        BudgetError: the narrowest network costs more than the budget.
        SearchError: `score` raised, returned something other than a finite number, or has no entry; the message names
            the widths.
        RunError: the store belongs to another space.
    """
    from bcnet.searchers.evolution import Evolution

    searcher = searcher if searcher is not None else Evolution()
    problem = Problem.of(space, budget, seed)
    space = problem.space
    if problem.budget.admits(space.cost(space.full)):
        problem.notes.append(f"the budget {budget} is not binding: the full-width network already satisfies it")
    if store is not None:
        store.check_space(space)
    ask = _looked_up(score) if isinstance(score, Mapping) else score
    if not callable(ask):
        raise SearchError(f"a score must be a function of widths or a table of them; got {type(score).__name__}")
    limit = _checked_limit(searcher)
    evaluator = Evaluator(problem, ask, limit=limit, over_budget=searcher.over_budget, mapper=mapper)
    evaluator.attach(store, callback)
    generation_ends = _drive(searcher.proposals(problem), evaluator)
    return summarise(problem, evaluator.evaluations, generation_ends)


def _looked_up(table: Mapping[Widths, float]) -> Score:
    def score(widths: Widths) -> float:
        if widths not in table:
            raise SearchError(
                f"a table of scores must have every candidate within the budget; this one, of {len(table):,}, lacks "
                "some: give the space the choices of the table (num_choices=, choices=)"
            )
        return table[widths]

    return score


def _checked_limit(searcher: Searcher) -> int:
    if searcher.limit < 1:
        raise SearchError(f"a search needs at least 1 evaluation; {searcher!r} allows {searcher.limit}")
    return searcher.limit


def _drive(generations: Proposals, evaluator: Evaluator) -> list[int]:
    """Run the searcher to its end and return the number of evaluations after each generation."""
    ends: list[int] = []
    idle = 0
    try:
        candidates = next(generations)
        # A searcher that proposes known candidates only would never reach its limit.
        while idle < _IDLE_GENERATIONS:
            before = len(evaluator.evaluations)
            scores = evaluator.evaluate(candidates)
            idle = 0 if len(evaluator.evaluations) > before else idle + 1
            if idle == 0:
                ends.append(len(evaluator.evaluations))
            if scores is None or evaluator.is_exhausted:
                break
            candidates = generations.send(scores)
    except StopIteration:
        pass
    finally:
        generations.close()
    return ends


class Evaluator:
    """Scores generations of candidates for one search and stores every evaluation in order."""

    def __init__(
        self,
        problem: Problem,
        score: Score,
        *,
        limit: int,
        over_budget: bool = False,
        mapper: Mapper = map,
    ) -> None:
        self.evaluations: list[Candidate] = []
        self._problem = problem
        self._score = score
        self._limit = limit
        self._over_budget = over_budget
        self._mapper = mapper
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
    def is_exhausted(self) -> bool:
        """Return whether the limit is reached."""
        return len(self.evaluations) >= self._limit

    def evaluate(self, candidates: Sequence[Widths]) -> list[float] | None:
        """Return the scores of a generation; None if the limit was reached before its end.

        Raises:
            SearchError: a candidate over budget, or a score that raised or is not a finite number.
        """
        # Stored scores are replayed at their place in the order, so that a resumed search proposes the same
        # candidates.
        fresh = [w for w in dict.fromkeys(candidates) if w not in self._known]
        within_limit = fresh[: self._limit - len(self.evaluations)]
        unknown = [w for w in within_limit if w not in self._stored]
        costs = self._costs(within_limit)
        scores = self._scores(unknown)
        for widths, cost in zip(within_limit, costs, strict=True):
            stored = self._stored.get(widths)
            if stored is None:
                score, parts = next(scores)
                self._add(Candidate(widths, score, cost, tuple(parts)), new=True)
            else:
                self._add(Candidate(widths, stored.score, cost, stored.parts), new=False)
        if len(within_limit) < len(fresh):
            return None
        return [self._known[w].score for w in candidates]

    def _scores(self, unknown: list[Widths]) -> Iterator[tuple[float, Sequence[float]]]:
        """Iterate over the scores of the `unknown` candidates, with scores on parts of the images if available."""
        score = self._score
        if isinstance(score, PartScore):
            yield from self._map(lambda w: self._in_parts(score, w), unknown)
        else:
            yield from ((value, ()) for value in self._map(lambda w: self._call(score, w), unknown))

    def _map(self, function: Callable[[Widths], _R], items: list[Widths]) -> Iterator[_R]:
        results = iter(self._mapper(function, items))
        for _ in items:
            try:
                yield next(results)
            except StopIteration:
                raise SearchError(
                    f"a mapper must give a score for every candidate; got fewer than {len(items)}"
                ) from None

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
        value, parts = self._score_or_raise(score.in_parts, widths)
        return checked_score(value, widths), tuple(checked_score(part, widths) for part in parts)

    def _call(self, score: Callable[..., Any], widths: Widths) -> float:
        return checked_score(self._score_or_raise(score, widths), widths)

    def _score_or_raise(self, score: Callable[..., Any], widths: Widths) -> Any:
        try:
            return score(widths)
        except BCNetError as error:
            raise SearchError(f"the score of widths {widths} failed: {error}") from error
        except Exception as error:
            raise SearchError(f"the score of widths {widths} raised {type(error).__name__}: {error}") from error


def checked_score(value: Any, widths: Widths) -> float:
    """Return the score as a float; a zero-dimensional array or tensor counts as a number.

    Raises:
        SearchError: it is not a finite number.
    """
    number = math.nan
    if not isinstance(value, (str, bytes, bool)):
        with contextlib.suppress(TypeError, ValueError):
            number = float(value)
    if not math.isfinite(number):
        raise SearchError(
            f"a score must be a finite number, higher is better; widths {widths} got {value!r}: fix the score"
        )
    return number
