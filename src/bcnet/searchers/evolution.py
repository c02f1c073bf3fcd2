"""NSGA-II over choice indices (spec, section 5), by pymoo.

What pymoo does here, and what this module adds: its duplicate elimination compares offspring with the parents and with
each other, not with everything ever scored, and its constraint handling lets infeasible offspring be evaluated. Both
filters are therefore put where pymoo discards duplicates, before evaluation, and what is discarded is drawn again.
Mating that brings nothing new in a bounded number of rounds is topped up with random feasible widths, so that a search
ends only at its limit or when every feasible candidate has been scored. After the first generation pymoo would mate all
40 of it; here the parents are the best 10 in every generation.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.duplicate import DuplicateElimination
from pymoo.core.population import Population
from pymoo.core.problem import Problem as PymooProblem
from pymoo.core.termination import NoTermination
from pymoo.operators.crossover.pntx import TwoPointCrossover
from pymoo.operators.mutation.pm import PolynomialMutation
from pymoo.operators.repair.rounding import RoundingRepair

from bcnet.errors import SearchError
from bcnet.searchers.prior import Prior
from bcnet.searchers.problem import IntArray, Problem
from bcnet.searchers.search import Proposals, Searcher
from bcnet.space import Widths

_MATING_ROUNDS = 30  # of pymoo, before a generation is topped up


@dataclass(frozen=True)
class Evolution(Searcher):
    """NSGA-II: error and MACs as objectives, the budget as constraint.

    `population` offspring in each of `generations`, the first one sampled from `prior` (or random near
    the budget); `parents` of them are kept by rank and crowding and mate by binary tournament, two-point `crossover`
    (probability per pair) and polynomial `mutation` of index `eta` (probability per group; None: one group on average).

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

    def __post_init__(self) -> None:
        for name in ("population", "generations", "parents"):
            if getattr(self, name) < 1:
                raise SearchError(f"{name} of an evolution is at least 1; got {getattr(self, name)}")
        for name in ("crossover", "mutation"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise SearchError(f"{name} of an evolution is a probability; got {value}")

    @property
    def limit(self) -> int:
        """Proposals times population."""
        return self.population * self.generations

    def proposals(self, problem: Problem) -> Proposals:
        """Yield one generation after the other (see `Searcher`)."""
        rng = np.random.default_rng([problem.seed, 1])
        known: set[Widths] = set()
        first = self._first_generation(problem, rng)
        algorithm = _Nsga2(self, problem, known, problem.indices(first))
        offspring = algorithm.ask()
        while len(offspring) > 0:
            candidates = problem.widths(offspring.get("X").astype(np.int64))
            scores = yield candidates
            known.update(candidates)
            macs = problem.space.cost(np.array(candidates)).macs
            offspring.set("F", np.column_stack([-np.array(scores), macs]))
            algorithm.tell(infills=offspring)
            offspring = self._topped_up(algorithm.ask(), problem, known, rng)

    def _first_generation(self, problem: Problem, rng: np.random.Generator) -> list[Widths]:
        if self.prior is None:
            return problem.fill(self.population, (), rng)
        sampled = self.prior.sample(self.population, problem.budget, rng)
        if sampled.note:
            problem.notes.append(sampled.note)
        return list(sampled.widths)

    def _topped_up(
        self, offspring: Population | None, problem: Problem, known: Collection[Widths], rng: np.random.Generator
    ) -> Population:
        mated = Population() if offspring is None else offspring
        missing = self.population - len(mated)
        if missing == 0:
            return mated
        taken = problem.widths(mated.get("X").astype(np.int64)) if len(mated) else []
        more = problem.fill(missing, {*known, *taken}, rng)
        return Population.merge(mated, Population.new("X", problem.indices(more))) if more else mated


class _NewAndFeasible(DuplicateElimination):  # type: ignore[misc]
    """Lets through only candidates never scored before that hold the budget."""

    def __init__(self, problem: Problem, known: Collection[Widths]) -> None:
        super().__init__()
        self._problem, self._known = problem, known

    def do(self, pop: Any, *others: Any, **_: Any) -> Any:
        """The individuals of `pop` that are feasible, new, and not among `others`."""
        if len(pop) == 0:
            return pop
        indices: IntArray = pop.get("X").astype(np.int64)
        feasible = self._problem.feasible(indices)
        taken = set(self._known)
        for other in others:
            if len(other) > 0:
                taken.update(self._problem.widths(other.get("X").astype(np.int64)))
        keep = []
        for number, widths in enumerate(self._problem.widths(indices)):
            if feasible[number] and widths not in taken:
                taken.add(widths)
                keep.append(number)
        return pop[keep]


class _Nsga2(NSGA2):  # type: ignore[misc]
    def __init__(self, settings: Evolution, problem: Problem, known: Collection[Widths], first: IntArray) -> None:
        super().__init__(
            pop_size=settings.parents,
            n_offsprings=settings.population,
            sampling=first,
            crossover=TwoPointCrossover(prob=settings.crossover),
            mutation=PolynomialMutation(prob=1.0, prob_var=settings.mutation, eta=settings.eta),
            repair=RoundingRepair(),
            eliminate_duplicates=_NewAndFeasible(problem, known),
            seed=problem.seed,
        )
        self.mating.n_max_iterations = _MATING_ROUNDS
        bounds = PymooProblem(n_var=len(problem.sizes), n_obj=2, xl=0, xu=problem.sizes - 1, vtype=int)
        self.setup(bounds, termination=NoTermination())

    def _initialize_advance(self, infills: Any = None, **kwargs: Any) -> None:
        self.pop = self.survival.do(
            self.problem, infills, n_survive=self.pop_size, random_state=self.random_state, algorithm=self, **kwargs
        )
