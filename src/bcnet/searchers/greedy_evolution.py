"""Evolution that starts where greedy slimming ends, as well as from the prior."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

from bcnet.errors import SearchError
from bcnet.searchers.base import Proposals, Searcher
from bcnet.searchers.evolution import Evolution
from bcnet.searchers.greedy import Greedy
from bcnet.space import Widths
from bcnet.space.problem import Problem


@dataclass(frozen=True)
class GreedyEvolution(Searcher):
    """Greedy slimming within `share` of the evaluations, then `evolution` with what is left of them.

    The best candidates within the budget that slimming met are in the first generation, half of it at most, beside what
    the evolution starts from in any case and samples of the prior. So the result scores no less than greedy slimming
    does within that share. Slimming goes a long way in few steps, evolution can take back what it got wrong, near the
    budget where `evolution.macs_from` says so.

    Raises:
        SearchError: a setting out of range.

    Example: `GreedyEvolution(Evolution(population=40, generations=50, prior=prior, macs_from=0.9))`
    """

    over_budget: ClassVar[bool] = True
    exhaustive: ClassVar[bool] = False

    evolution: Evolution = field(default_factory=Evolution)
    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise SearchError(f"share of a GreedyEvolution lies between 0 and 1; got {self.share}")

    @property
    def limit(self) -> int:
        """That of the evolution."""
        return self.evolution.limit

    def proposals(self, problem: Problem) -> Proposals:
        """Yield the rounds of slimming, then generations (see `Searcher`)."""
        slimming = Greedy(max(1, int(self.share * self.limit))).proposals(problem)
        met: dict[Widths, float] = {}
        candidates: list[Widths] | None = next(slimming)
        while candidates:
            scores = yield candidates
            met.update(zip(candidates, scores, strict=True))
            candidates = _next(slimming, scores)
        inside = [w for w, holds in zip(met, problem.feasible(problem.indices(list(met))), strict=True) if holds]
        best = sorted(inside, key=lambda w: -met[w])[: max(1, self.evolution.population // 2)]
        yield from dataclasses.replace(self.evolution, first=(*best, *self.evolution.first)).proposals(problem)


def _next(proposals: Proposals, scores: list[float]) -> list[Widths] | None:
    try:
        return proposals.send(scores)
    except StopIteration:
        return None
