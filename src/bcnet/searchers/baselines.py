"""Baseline searchers: random widths near the budget, and samples of the prior."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bcnet.errors import SearchError
from bcnet.prior.prior import Prior
from bcnet.searchers.base import Proposals, Searcher
from bcnet.space import Widths
from bcnet.space.problem import Problem

_BATCH = 40


def _check_limit(searcher: object, evaluations: int) -> None:
    if evaluations < 1:
        raise SearchError(f"evaluations of {type(searcher).__name__} are at least 1; got {evaluations}")


@dataclass(frozen=True)
class Random(Searcher):
    """Random widths between 0.97 and 1.0 of the budget, where the choices allow it (spec, section 5)."""

    evaluations: int = 2000

    def __post_init__(self) -> None:
        _check_limit(self, self.evaluations)

    @property
    def limit(self) -> int:
        """Number of evaluations."""
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
    """The best of samples from the prior (the paper's Fig. 6)."""

    prior: Prior = field(repr=False)
    evaluations: int = 2000

    def __post_init__(self) -> None:
        _check_limit(self, self.evaluations)

    @property
    def limit(self) -> int:
        """Number of evaluations."""
        return self.evaluations

    def proposals(self, problem: Problem) -> Proposals:
        """Yield all samples as one generation (see `Searcher`)."""
        sampled = self.prior.sample(self.evaluations, problem.budget, np.random.default_rng([problem.seed, 3]))
        if sampled.note:
            problem.notes.append(sampled.note)
        yield list(sampled.widths)
