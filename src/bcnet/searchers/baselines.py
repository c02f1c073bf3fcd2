"""Baselines: random widths near the budget, samples of the prior alone, and regularised evolution."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from bcnet.errors import SearchError
from bcnet.prior.prior import Prior
from bcnet.searchers.base import Proposals, Searcher
from bcnet.space import Widths
from bcnet.space.problem import IntArray, Problem

_BATCH = 40
_REDRAWS = 96
_DRAWN_AT_ONCE = 8


def _check_limit(searcher: object, evaluations: int) -> None:
    if evaluations < 1:
        raise SearchError(f"evaluations of {type(searcher).__name__} are at least 1; got {evaluations}")


@dataclass(frozen=True)
class Random(Searcher):
    """Random widths between 0.97 and 1.0 of the budget wherever the choices allow it (spec, section 5)."""

    evaluations: int = 2000

    def __post_init__(self) -> None:
        _check_limit(self, self.evaluations)

    @property
    def limit(self) -> int:
        """Evaluations, as set."""
        return self.evaluations

    def proposals(self, problem: Problem) -> Proposals:
        """Yield batches of random candidates (see `Searcher`)."""
        rng = np.random.default_rng([problem.seed, 2])
        known: set[Widths] = set()
        while batch := problem.fill(_BATCH, known, rng):
            yield batch
            known.update(batch)


@dataclass(frozen=True)
class PriorOnly(Searcher):
    """The best of samples of the prior (the paper's Fig. 6)."""

    prior: Prior = field(repr=False)
    evaluations: int = 2000

    def __post_init__(self) -> None:
        _check_limit(self, self.evaluations)

    @property
    def limit(self) -> int:
        """Evaluations, as set."""
        return self.evaluations

    def proposals(self, problem: Problem) -> Proposals:
        """Yield all samples as one generation (see `Searcher`)."""
        sampled = self.prior.sample(self.evaluations, problem.budget, np.random.default_rng([problem.seed, 3]))
        if sampled.note:
            problem.notes.append(sampled.note)
        yield list(sampled.widths)


@dataclass(frozen=True)
class RegularizedEvolution(Searcher):
    """Ageing evolution (Real et al., AAAI 2019): the best of a random sample mutates in one group, the oldest dies.

    A mutated group takes any other choice with equal chance. Mutants over budget or met before are drawn again.
    """

    evaluations: int = 2000
    population: int = 40
    sample: int = 10

    def __post_init__(self) -> None:
        _check_limit(self, self.evaluations)
        if not 1 <= self.sample <= self.population:
            raise SearchError(f"sample is in [1, population]; got {self.sample} of {self.population}")

    @property
    def limit(self) -> int:
        """Evaluations, as set."""
        return self.evaluations

    def proposals(self, problem: Problem) -> Proposals:
        """Yield the first population, then one mutant after the other (see `Searcher`)."""
        rng = np.random.default_rng([problem.seed, 4])
        first = problem.fill(self.population, (), rng)
        known = set(first)
        scores = yield first
        alive = deque(zip(problem.indices(first), scores, strict=True), maxlen=self.population)
        while True:
            chosen = rng.choice(len(alive), size=min(self.sample, len(alive)), replace=False)
            parent = max((alive[int(i)] for i in chosen), key=lambda member: member[1])[0]
            mutant = self._mutant(parent, problem, known, rng)
            if mutant is None:
                return
            known.add(mutant)
            (score,) = yield [mutant]
            alive.append((problem.indices([mutant])[0], score))

    def _mutant(
        self, parent: IntArray, problem: Problem, known: set[Widths], rng: np.random.Generator
    ) -> Widths | None:
        free = np.flatnonzero(problem.sizes > 1)
        for _ in range(_REDRAWS // _DRAWN_AT_ONCE if len(free) else 0):
            groups = rng.choice(free, size=_DRAWN_AT_ONCE)
            children = np.tile(parent, (_DRAWN_AT_ONCE, 1))
            moved = parent[groups] + rng.integers(1, problem.sizes[groups])
            children[np.arange(_DRAWN_AT_ONCE), groups] = moved % problem.sizes[groups]
            for widths in problem.widths(children[problem.feasible(children)]):
                if widths not in known:
                    return widths
        return next(iter(problem.fill(1, known, rng)), None)
