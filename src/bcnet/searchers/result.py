"""Result of a search: the best candidate, the Pareto front, and every evaluation in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bcnet.display import table
from bcnet.errors import BudgetError
from bcnet.space import Budget, Cost, Widths
from bcnet.space.problem import Problem


@dataclass(frozen=True)
class Candidate:
    """Widths with their score (higher is better) and their cost.

    `parts` are the scores on parts of the images, if the score provides them (`PartScore`).
    """

    widths: Widths
    score: float
    cost: Cost
    parts: tuple[float, ...] = ()


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    `best` is the feasible candidate with the highest score; among equals the cheapest, then the first. `front` are the
    feasible candidates not dominated in score and multiply-adds, ascending in multiply-adds. `evaluations` lists every
    scored candidate in order. `hypervolumes` has one value per generation: the area between the front and the lowest
    score of the first generation, over multiply-adds from 0 to 1 (the whole budget), in units of the score; it never
    decreases. `budget` is in absolute counts. `notes` are remarks for the user, for instance that a population was
    filled up randomly.
    """

    best: Candidate
    front: tuple[Candidate, ...]
    evaluations: tuple[Candidate, ...]
    hypervolumes: tuple[float, ...]
    budget: Budget
    reference: Cost
    seed: int
    notes: tuple[str, ...] = ()

    def with_further(self, candidates: Sequence[Candidate]) -> SearchResult:
        """Return the result with further candidates that belong to no generation."""
        evaluations = (*self.evaluations, *candidates)
        inside = [c for c in evaluations if self.budget.admits(c.cost)]
        best = min(inside, key=_preference)
        return dataclasses.replace(self, best=best, front=pareto_front(inside), evaluations=evaluations)

    def _repr_html_(self) -> str:
        named = [("best", self.best), *((f"front {number}", c) for number, c in enumerate(self.front, 1))]
        rows = [
            (
                name,
                c.score,
                c.cost.macs,
                c.cost.macs / self.reference.macs,
                c.cost.params,
                ", ".join(map(str, c.widths)),
            )
            for name, c in named
        ]
        title = f"{len(self.evaluations):,} candidates scored under {self.budget}"
        return table(title, ("", "score", "MACs", "ratio", "parameters", "widths"), rows, self.notes)

    def best_under(self, budget: Budget) -> Candidate:
        """Return the best of all evaluations under another budget, so one search answers every smaller budget.

        Raises:
            BudgetError: no evaluated candidate satisfies the budget.
        """
        limits = budget.resolve(self.reference)
        inside = [c for c in self.evaluations if limits.admits(c.cost)]
        if not inside:
            cheapest = min(self.evaluations, key=lambda c: c.cost.macs)
            raise BudgetError(
                f"no evaluated candidate holds {limits}; the cheapest has {cheapest.cost.macs:,} MACs and "
                f"{cheapest.cost.params:,} parameters: raise the budget, or search under it"
            )
        return min(inside, key=_preference)


def _preference(candidate: Candidate) -> tuple[float, int]:
    return -candidate.score, candidate.cost.macs


def pareto_front(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates not dominated in score and multiply-adds, ascending in multiply-adds."""
    front: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.cost.macs, -c.score)):
        if not front or candidate.score > front[-1].score:
            front.append(candidate)
    return tuple(front)


def hypervolume(front: Sequence[Candidate], score: float, macs: int) -> float:
    """Return the area dominated by `front` (ascending in multiply-adds) above `score` and below `macs`."""
    if not front:
        return 0.0
    ends = [c.cost.macs for c in front[1:]] + [macs]
    steps = zip(front, ends, strict=True)
    area: float = sum(max(0.0, c.score - score) * max(0, min(end, macs) - c.cost.macs) for c, end in steps)
    return area / macs


def summarise(problem: Problem, evaluations: Sequence[Candidate], generation_ends: Sequence[int]) -> SearchResult:
    """Return the result of the evaluations; generation `i` ends at `generation_ends[i]`."""
    inside = [c for c in evaluations if problem.budget.admits(c.cost)]
    if not inside:
        raise AssertionError("a searcher ended without one feasible candidate")
    return SearchResult(
        best=min(inside, key=_preference),
        front=pareto_front(inside),
        evaluations=tuple(evaluations),
        hypervolumes=_hypervolumes(problem, evaluations, generation_ends),
        budget=problem.budget,
        reference=problem.space.reference,
        seed=problem.seed,
        notes=tuple(problem.notes),
    )


def _hypervolumes(
    problem: Problem, evaluations: Sequence[Candidate], generation_ends: Sequence[int]
) -> tuple[float, ...]:
    macs = problem.budget.macs if problem.budget.macs is not None else problem.space.cost(problem.space.full).macs
    assert isinstance(macs, int)
    # The reference point comes from the first generation, so that figures of later ones are comparable.
    lowest = min(c.score for c in evaluations[: generation_ends[0]])
    front: tuple[Candidate, ...] = ()
    figures: list[float] = []
    start = 0
    for end in generation_ends:
        fresh = [c for c in evaluations[start:end] if problem.budget.admits(c.cost)]
        front = pareto_front([*front, *fresh])
        start = end
        figures.append(hypervolume(front, lowest, macs))
    return tuple(figures)
