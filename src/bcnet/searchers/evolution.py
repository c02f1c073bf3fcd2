"""Evolution over choice indices (spec, section 5): settings and generations. `nsga2` calls pymoo."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from bcnet.costs import MACS
from bcnet.errors import SearchError
from bcnet.prior.prior import Prior
from bcnet.searchers.base import Proposals, Searcher, Tournament
from bcnet.space import Widths
from bcnet.space.problem import FloatArray, IntArray, Problem


@dataclass(frozen=True)
class Evolution(Searcher):
    """NSGA-II with error and multiply-adds as objectives and the budget as constraint.

    Each of `generations` has `population` offspring; the first generation is sampled from `prior`, or randomly near the
    budget. `parents` survive by rank and crowding. They mate by binary tournament, two-point `crossover` (probability
    per pair) and polynomial `mutation` of index `eta` (probability per group; None: one group on average). `first` are
    feasible candidates that join the first generation. Below the share `macs_from` of the budget a cheaper candidate is
    no better: at 0 the whole front survives, near 1 the search stays near the budget. `tournament` is decided by the
    better "score", or by "rank" and crowding as in the paper.

    Example: `Evolution(population=40, generations=50)` scores 2,000 candidates.

    Raises:
        SearchError: a setting out of range.
    """

    population: int = 40
    generations: int = 50
    parents: int = 10
    prior: Prior | None = field(default=None, repr=False)
    crossover: float = 0.9
    mutation: float | None = None
    eta: float = 3.0
    first: tuple[Widths, ...] = field(default=(), repr=False)
    macs_from: float = 0.9
    tournament: Tournament = "score"

    def __post_init__(self) -> None:
        for name in ("population", "generations", "parents"):
            if getattr(self, name) < 1:
                raise SearchError(f"{name} of an evolution must be at least 1; got {getattr(self, name)}")
        for name in ("crossover", "mutation"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise SearchError(f"{name} of an evolution must be a probability; got {value}")
        if not 0 <= self.macs_from <= 1:
            raise SearchError(f"macs_from of an evolution must be a share of the budget, 0 to 1; got {self.macs_from}")
        if self.tournament not in get_args(Tournament):
            raise SearchError(f"a tournament must be won by score or by rank; got {self.tournament!r}")

    @property
    def limit(self) -> int:
        """Generations times population."""
        return self.population * self.generations

    def proposals(self, problem: Problem) -> Proposals:
        """Yield one generation after the other (see `Searcher`)."""
        from bcnet.searchers.nsga2 import Nsga2, topped_up  # pymoo takes a third of a second to import

        rng = np.random.default_rng([problem.seed, 1])
        known: set[Widths] = set()
        first = self._first_generation(problem, rng)
        algorithm = Nsga2(
            problem,
            known,
            problem.indices(first),
            parents=self.parents,
            population=self.population,
            crossover=self.crossover,
            mutation=self.mutation,
            eta=self.eta,
            tournament=self.tournament,
        )
        offspring = algorithm.ask()
        while len(offspring) > 0:
            candidates = problem.widths(offspring.get("X").astype(np.int64))
            scores = np.array((yield candidates))
            known.update(candidates)
            offspring.set("F", np.column_stack([-scores, self._costs(problem, candidates)]))
            algorithm.tell(infills=offspring)
            offspring = topped_up(algorithm.ask(), self.population, problem, known, rng)

    def _costs(self, problem: Problem, candidates: list[Widths]) -> FloatArray | IntArray:
        """Return the second objective: multiply-adds, or the largest share of a limit under several measures."""
        if self.macs_from and set(problem.budget.limits) != {MACS}:
            return np.maximum(problem.load(problem.indices(candidates)), self.macs_from)
        least = int(self.macs_from * (problem.budget.macs or 0))
        macs: IntArray = np.maximum(problem.space.cost(np.array(candidates)).macs, least)
        return macs

    def _first_generation(self, problem: Problem, rng: np.random.Generator) -> list[Widths]:
        given = list(dict.fromkeys(self.first))[: self.population]
        if self.prior is None:
            return [*given, *problem.fill(self.population - len(given), given, rng)]
        sampled = self.prior.sample(self.population, problem.budget, rng)
        if sampled.note:
            problem.notes.append(sampled.note)
        return [*given, *(w for w in sampled.widths if w not in given)][: self.population]
