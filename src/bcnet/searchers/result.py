"""What a search found: the best candidate, the Pareto front, and every evaluation in order."""

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

    Where candidates were raced (see `racing`), `batches` are the scores on the batches met, and those on parts of the
    images where the score knows them (`PartScore`). One that was stopped has an estimate as its score, and `upper`,
    below which its score on all batches stays by the bound.
    """

    widths: Widths
    score: float
    cost: Cost
    batches: tuple[float, ...] = ()
    upper: float | None = None

    @property
    def complete(self) -> bool:
        """Whether the score is that of all batches; only then can it be the best, or on a front."""
        return self.upper is None


@dataclass(frozen=True)
class SearchResult:
    """The outcome of a search.

    `best` is the highest score within the budget (of equals the cheapest, then the first); `front` the candidates
    within the budget that no other one beats in score at no more MACs, ascending in MACs; `evaluations` every scored
    candidate in order, those that were stopped early among them: they are never `best` or in `front`. `hypervolumes`
    has one figure per generation: the area between the front and the lowest score of the first generation, over MACs
    from 0 to 1 (all of the budget), in units of the score; it never falls. `budget` is in absolute counts. `notes` says
    what a person should know, for instance that a population had to be topped up.
    """

    best: Candidate
    front: tuple[Candidate, ...]
    evaluations: tuple[Candidate, ...]
    hypervolumes: tuple[float, ...]
    budget: Budget
    reference: Cost
    seed: int
    notes: tuple[str, ...] = ()

    @property
    def stopped(self) -> int:
        """How many candidates were stopped early."""
        return sum(not c.complete for c in self.evaluations)

    @property
    def effort(self) -> float:
        """Batches scored, as a share of those that scoring every candidate on all of them takes."""
        return effort(self.evaluations)

    def with_further(self, candidates: Sequence[Candidate]) -> SearchResult:
        """The same with more candidates, which no generation had."""
        evaluations = (*self.evaluations, *candidates)
        inside = [c for c in evaluations if c.complete and self.budget.admits(c.cost)]
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
        early = f", {self.stopped:,} of them stopped early," if self.stopped else ""
        title = f"{len(self.evaluations):,} candidates scored{early} under {self.budget}"
        return table(title, ("", "score", "MACs", "ratio", "parameters", "widths"), rows, self.notes)

    def best_under(self, budget: Budget) -> Candidate:
        """The best of all evaluations under another budget: one search answers every budget below its own.

        Raises:
            BudgetError: no evaluated candidate satisfies the budget.
        """
        limits = budget.resolve(self.reference)
        inside = [c for c in self.evaluations if c.complete and limits.admits(c.cost)]
        if not inside:
            cheapest = min((c for c in self.evaluations if c.complete), key=lambda c: c.cost.macs)
            raise BudgetError(
                f"no evaluated candidate holds {limits}; the cheapest has {cheapest.cost.macs:,} MACs and "
                f"{cheapest.cost.params:,} parameters: raise the budget, or search under it"
            )
        return min(inside, key=_preference)


def _preference(candidate: Candidate) -> tuple[float, int]:
    return -candidate.score, candidate.cost.macs


def effort(evaluations: Sequence[Candidate]) -> float:
    """Batches scored, as a share of all batches of all candidates; 1 where nothing was raced."""
    most = max((len(c.batches) for c in evaluations), default=0)
    return sum(len(c.batches) for c in evaluations) / (most * len(evaluations)) if most else 1.0


def pareto_front(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The candidates that no other one beats in score at no more MACs, ascending in MACs (of equals the first).

    Those that were stopped early are left out: nothing is known of their score but an estimate.
    """
    front: list[Candidate] = []
    for candidate in sorted((c for c in candidates if c.complete), key=lambda c: (c.cost.macs, -c.score)):
        if not front or candidate.score > front[-1].score:
            front.append(candidate)
    return tuple(front)


def hypervolume(front: Sequence[Candidate], score: float, macs: int) -> float:
    """Area dominated by `front` (ascending in MACs) above `score` and below `macs`, in units of the score."""
    if not front:
        return 0.0
    ends = [c.cost.macs for c in front[1:]] + [macs]
    steps = zip(front, ends, strict=True)
    area: float = sum(max(0.0, c.score - score) * max(0, min(end, macs) - c.cost.macs) for c, end in steps)
    return area / macs


def summarise(problem: Problem, evaluations: Sequence[Candidate], generation_ends: Sequence[int]) -> SearchResult:
    """The result of the evaluations, generation `i` being those up to `generation_ends[i]`."""
    inside = [c for c in evaluations if c.complete and problem.budget.admits(c.cost)]
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
    lowest = min(c.score for c in evaluations[: generation_ends[0]] if c.complete)
    front: tuple[Candidate, ...] = ()
    figures: list[float] = []
    start = 0
    for end in generation_ends:
        fresh = [c for c in evaluations[start:end] if problem.budget.admits(c.cost)]
        front = pareto_front([*front, *fresh])
        start = end
        figures.append(hypervolume(front, lowest, macs))
    return tuple(figures)
