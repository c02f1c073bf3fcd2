"""One interface for every searcher: proposals of candidates in, scores out.

A searcher is a generator of generations. It yields lists of candidates and is sent their scores; whoever drives it
scores a whole generation at once. A search is therefore a pure function of (space, budget, searcher, seed, scores), and
resuming replays it from stored evaluations.
"""

from __future__ import annotations

from collections.abc import Mapping

from bcnet.errors import SearchError
from bcnet.searchers.base import Proposals, Searcher
from bcnet.searchers.racing import Race
from bcnet.searchers.result import SearchResult, summarise
from bcnet.searchers.scoring import Callback, Evaluator, Mapper, Score
from bcnet.searchers.store import EvaluationStore
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.space.problem import Problem

_IDLE_GENERATIONS = 100  # a searcher that proposes nothing new for so long has nothing left to propose


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
    early_stop: Race | None = None,
) -> SearchResult:
    """The widths of `space` with the highest `score` under `budget`.

    `score(widths) -> float`, higher is better, is called once per candidate, never over budget (but see `Greedy`). A
    table, `{widths: score}`, does as well, if it has every candidate within the budget.
    `searcher` is `Evolution()` by default. Evaluations already in `store` are not repeated and new ones are added as
    they happen. `callback(candidate, done, limit)` follows each of them. `mapper` asks for the scores of a generation:
    the builtin `map` for one after the other, or what does the same at once (see `Mapper`); the result does not depend
    on it. With the `map` of a `ProcessGroup` every process makes the same call; each has a store of its own, or none.
    `early_stop` stops candidates that by its bound will not be retained, on a part of the batches of the score
    (`racing`); without it every candidate is scored on all.

    Raises:
        BudgetError: the narrowest network costs more than the budget.
        SearchError: `score` gave something that is no finite number, raised, or has no entry; the message names the
            widths. `early_stop` with a score that is not made of batches.
        RunError: the store belongs to another space.
    """
    from bcnet.searchers.evolution import Evolution

    searcher = searcher if searcher is not None else Evolution()
    problem = Problem.of(space, budget, seed)
    space = problem.space
    if problem.budget.admits(space.cost(space.full)):
        problem.notes.append(f"the budget {budget} limits nothing: the widest network of the space holds it")
    if store is not None:
        store.check_space(space)
    ask = _looked_up(score) if isinstance(score, Mapping) else score
    if not callable(ask):
        raise SearchError(f"a score is a function of widths or a table of them; got {type(score).__name__}")
    limit = _checked_limit(searcher)
    evaluator = Evaluator(problem, ask, limit=limit, over_budget=searcher.over_budget, mapper=mapper, race=early_stop)
    evaluator.attach(store, callback)
    generation_ends = _drive(searcher.proposals(problem), evaluator)
    return summarise(problem, evaluator.evaluations, generation_ends)


def _looked_up(table: Mapping[Widths, float]) -> Score:
    def score(widths: Widths) -> float:
        if widths not in table:
            raise SearchError(
                f"a table of scores has every candidate within the budget; this one, of {len(table):,}, lacks some: "
                "give the space the choices of the table (num_choices=, choices=)"
            )
        return table[widths]

    return score


def _checked_limit(searcher: Searcher) -> int:
    if searcher.limit < 1:
        raise SearchError(f"a search needs at least 1 evaluation; {searcher!r} allows {searcher.limit}")
    return searcher.limit


def _drive(generations: Proposals, evaluator: Evaluator) -> list[int]:
    """Run the searcher to its end; the number of evaluations after each generation."""
    ends: list[int] = []
    idle = 0
    try:
        candidates = next(generations)
        while idle < _IDLE_GENERATIONS:
            before = len(evaluator.evaluations)
            scores = evaluator.evaluate(candidates)
            idle = 0 if len(evaluator.evaluations) > before else idle + 1
            if idle == 0:
                ends.append(len(evaluator.evaluations))
            if scores is None or evaluator.exhausted:
                break
            candidates = generations.send(scores)
    except StopIteration:
        pass
    finally:
        generations.close()
    return ends
