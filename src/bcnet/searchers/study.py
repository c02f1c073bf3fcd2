"""A search for your own scores and your own loop: ask for widths, score them anyhow, tell the scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bcnet.errors import SearchError
from bcnet.searchers.base import Searcher
from bcnet.searchers.model_based import ModelBased
from bcnet.searchers.result import Candidate, SearchResult, summarise
from bcnet.searchers.search import Mapper, checked_score
from bcnet.searchers.store import EvaluationStore
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.space.problem import Problem

_IDLE = 100  # lists without a new candidate, after which a searcher has nothing left to propose


class Study:
    """A search by `ask` and `tell`, resumable from a store on disk.

    Candidates come in lists that can be scored in any order, also by several workers at once; the next list is proposed
    from all scores of the one before. The study is a pure function of (space, budget, searcher, seed, scores).

    Args:
        space: the width space.
        budget: the limit that candidates satisfy.
        searcher: what proposes candidates; by default `ModelBased(evaluations=32)`, a model of the scores.
        seed: of the proposals.
        store: an SQLite file; what is in it is not scored again. Its `settings` say what the scores depend on.
        settings: a text that tells these scores from others of the same space, of other data for instance.

    Raises:
        BudgetError: the narrowest network of the space costs more than the budget.
        RunError: the store belongs to another space or other settings.

    Example: `Study(space, Budget(macs=0.5)).optimize(score, n=32).widths`
    """

    def __init__(
        self,
        space: WidthSpace,
        budget: Budget,
        *,
        searcher: Searcher | None = None,
        seed: int = 0,
        store: str | Path = ":memory:",
        settings: str = "",
    ) -> None:
        self._problem = Problem.of(space, budget, seed)
        self._searcher = ModelBased(32) if searcher is None else searcher
        self._store = EvaluationStore(store, self._problem.space, settings)
        self._known = {c.widths: c for c in self._store.evaluations}
        self._proposals = self._searcher.proposals(self._problem)
        self._candidates: list[Widths] | None = None
        self._asked: set[Widths] = set()
        self._advance(None)

    @property
    def evaluations(self) -> tuple[Candidate, ...]:
        """Every scored candidate, in the order in which the scores came."""
        return tuple(self._known.values())

    @property
    def best(self) -> Candidate:
        """The candidate within the budget with the highest score, of equals the one with fewer multiply-adds.

        Raises:
            SearchError: nothing has been scored yet.
        """
        return self.result.best

    @property
    def result(self) -> SearchResult:
        """Everything that was scored, the best, and the Pareto front.

        Raises:
            SearchError: nothing within the budget has been scored yet.
        """
        inside = [c for c in self._known.values() if self._problem.budget.admits(c.cost)]
        if not inside:
            raise SearchError("a study has no best widths before the first score: call optimize, or ask and tell")
        return summarise(self._problem, self.evaluations, [len(self._known)])

    @property
    def is_finished(self) -> bool:
        """Return whether the searcher has nothing left to propose, or its limit is reached."""
        return self._candidates is None or len(self._known) >= self._searcher.limit

    def ask(self) -> Widths:
        """Return the next candidate to score.

        Raises:
            SearchError: the study is finished, or all candidates at hand wait for their scores (`ask_batch`).
        """
        waiting = self.ask_batch(1)
        if not waiting:
            told = "is finished" if self.is_finished else "waits for the scores of the candidates it has given"
            raise SearchError(f"a study that {told} gives no more widths; {len(self._known)} are scored: call tell")
        return waiting[0]

    def ask_batch(self, most: int | None = None) -> list[Widths]:
        """Return candidates that can be scored at once, at most so many; none where all wait for their scores."""
        if self._candidates is None:
            return []
        left = self._searcher.limit - len(self._known) - len(self._asked)
        count = left if most is None else min(left, most)
        waiting = [w for w in self._candidates if w not in self._known and w not in self._asked][: max(0, count)]
        self._asked.update(waiting)
        return waiting

    def tell(self, widths: Widths, score: float) -> None:
        """Note the score of a candidate; higher is better. On return it is in the store.

        Raises:
            SearchError: a score that is no finite number, or widths that were not asked for.
        """
        key = tuple(widths)
        if key in self._known:
            raise SearchError(f"widths are scored once; {list(key)} have the score {self._known[key].score:g} already")
        if key not in self._asked:
            raise SearchError(f"a study is told the scores of widths that it has given; got {list(key)}: call ask")
        candidate = Candidate(key, checked_score(score, key), self._problem.space.cost(key))
        self._store.add(candidate)
        self._known[key] = candidate
        self._asked.discard(key)
        if self._candidates is not None and all(w in self._known for w in self._candidates):
            self._advance([self._known[w].score for w in self._candidates])

    def optimize(self, score: Callable[[Widths], float], n: int | None = None, *, mapper: Mapper = map) -> Candidate:
        """Score candidates until `n` have scores, those in the store among them, and return the best.

        `n` is the searcher's limit by default. `mapper` asks for several scores at once, in order: the builtin `map`,
        or the `map` of an executor.

        Raises:
            SearchError: a score that is no finite number.
        """
        wanted = self._searcher.limit if n is None else n
        while len(self._known) < wanted and not self.is_finished:
            batch = self.ask_batch(wanted - len(self._known))
            for widths, value in zip(batch, mapper(score, batch), strict=True):
                self.tell(widths, value)
        return self.best

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _advance(self, scores: list[float] | None) -> None:
        """Let the searcher propose lists until one has a candidate without a score."""
        for _ in range(_IDLE):
            try:
                self._candidates = next(self._proposals) if scores is None else self._proposals.send(scores)
            except StopIteration:
                break
            if any(w not in self._known for w in self._candidates):
                return
            scores = [self._known[w].score for w in self._candidates]
        self._candidates = None
