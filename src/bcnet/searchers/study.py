"""Ask-and-tell search for custom scores and loops."""

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

_IDLE = 100  # lists without a new candidate after which the searcher counts as finished


class Study:
    """A search by `ask` and `tell`, resumable from a store on disk.

    Candidates of a list can be scored in any order and by several workers at once. The next list is proposed from all
    scores of the one before. The study is a pure function of (space, budget, searcher, seed, scores).

    Args:
        space: the width space.
        budget: the limit that candidates satisfy.
        searcher: the searcher that proposes candidates; by default `ModelBased(evaluations=32)`, a model of the scores.
        seed: seed of the proposals.
        store: an SQLite file. Evaluations in it are not repeated.
        settings: text that describes what the scores depend on, such as the data; stored scores of other settings are
            refused.

    Raises:
        BudgetError: the narrowest network of the space costs more than the budget.
        RunError: the store belongs to another space or other settings.
        SearchError: `space` or `searcher` is of another type.

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
        if not isinstance(space, WidthSpace):
            raise SearchError(
                f"a study takes a WidthSpace and a Budget, in this order; got {type(space).__name__} and "
                f"{type(budget).__name__}: trace the model, bcnet.trace(model, x)"
            )
        if isinstance(searcher, type) or not hasattr(searcher or Searcher, "proposals"):
            raise SearchError(f"a searcher must be a Searcher such as bcnet.Evolution(); got {searcher!r}")
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
        """Every scored candidate in the order in which its score arrived."""
        return tuple(self._known.values())

    @property
    def best(self) -> Candidate:
        """Feasible candidate with the highest score; among equals, the one with fewer multiply-adds.

        Raises:
            SearchError: nothing is scored yet.
        """
        return self.result.best

    @property
    def result(self) -> SearchResult:
        """All scored candidates, the best one, and the Pareto front.

        Raises:
            SearchError: no feasible candidate is scored yet.
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
            SearchError: the study is finished, or all current candidates wait for scores (see `ask_batch`).
        """
        waiting = self.ask_batch(1)
        if not waiting:
            state = "is finished" if self.is_finished else "waits for the scores of the candidates it has given"
            raise SearchError(f"a study that {state} gives no more widths; {len(self._known)} are scored: call tell")
        return waiting[0]

    def ask_batch(self, most: int | None = None) -> list[Widths]:
        """Return up to `most` candidates that can be scored at once; an empty list if all wait for scores."""
        if self._candidates is None:
            return []
        # Candidates given out count against the limit, as their scores are still to come.
        left = self._searcher.limit - len(self._known) - len(self._asked)
        count = left if most is None else min(left, most)
        waiting = [w for w in self._candidates if w not in self._known and w not in self._asked][: max(0, count)]
        self._asked.update(waiting)
        return waiting

    def tell(self, widths: Widths, score: float) -> None:
        """Record the score of a candidate; higher is better. It is in the store when the call returns.

        Raises:
            SearchError: the score is not a finite number, or `ask` did not return these widths.
        """
        key = tuple(widths)
        if key in self._known:
            raise SearchError(
                f"widths must be scored once; {list(key)} have the score {self._known[key].score:g} already"
            )
        if key not in self._asked:
            raise SearchError(f"tell needs widths that ask has returned; got {list(key)}: call ask")
        candidate = Candidate(key, checked_score(score, key), self._problem.space.cost(key))
        self._store.add(candidate)
        self._known[key] = candidate
        self._asked.discard(key)
        if self._candidates is not None and all(w in self._known for w in self._candidates):
            self._advance([self._known[w].score for w in self._candidates])

    def optimize(self, score: Callable[[Widths], float], n: int | None = None, *, mapper: Mapper = map) -> Candidate:
        """Score candidates until `n` have scores, including those in the store, and return the best.

        `n` defaults to the searcher's limit. `mapper` computes scores in order: the builtin `map`, or the `map` of an
        executor to compute several at once.

        Raises:
            SearchError: a score is not a finite number.
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
        """Advance the searcher until it proposes a list with an unscored candidate."""
        for _ in range(_IDLE):
            try:
                self._candidates = next(self._proposals) if scores is None else self._proposals.send(scores)
            except StopIteration:
                break
            # A list that the store has scored completely is answered at once, which replays an interrupted study.
            if any(w not in self._known for w in self._candidates):
                return
            scores = [self._known[w].score for w in self._candidates]
        self._candidates = None
