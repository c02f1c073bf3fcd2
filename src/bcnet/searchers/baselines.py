"""Baseline searchers: random widths near the budget, samples of the prior, and AutoSlim's greedy slimming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bcnet.errors import SearchError
from bcnet.prior.prior import Prior
from bcnet.searchers.base import Proposals, Searcher
from bcnet.space import Widths
from bcnet.space.problem import IntArray, Problem

_BATCH = 40


def _check_limit(searcher: object, evaluations: int) -> None:
    if evaluations < 1:
        raise SearchError(f"evaluations of {type(searcher).__name__} must be at least 1; got {evaluations}")


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


@dataclass(frozen=True)
class Greedy(Searcher):
    """Starting at full width, repeatedly narrow the group that hurts the score least, until the budget is satisfied.

    Each round scores every group narrowed by `step` choices and keeps the best candidate. The candidates over budget
    that this requires are never returned as `best` or in `front`. `step=None` takes the smallest step with which even
    slimming fits into `evaluations`. If these run out first, groups are narrowed in the order of the last round's
    scores until the budget is satisfied, and that candidate is the last one scored.

    Raises:
        SearchError: a setting out of range.
    """

    over_budget: ClassVar[bool] = True
    exhaustive: ClassVar[bool] = False

    evaluations: int = 2000
    step: int | None = None

    def __post_init__(self) -> None:
        if self.evaluations < 1 or (self.step is not None and self.step < 1):
            raise SearchError(
                f"evaluations and step of Greedy must be at least 1; got {self.evaluations} and {self.step}"
            )

    @property
    def limit(self) -> int:
        """Number of evaluations."""
        return self.evaluations

    def proposals(self, problem: Problem) -> Proposals:
        """Yield one round of narrower candidates after the other (see `Searcher`)."""
        step = self.step if self.step is not None else self._fitting_step(problem)
        current = problem.sizes - 1
        order: list[int] = list(range(len(current)))
        left = self.evaluations
        while not problem.feasible(current[None])[0]:
            narrower = _narrow_each_group(current, step)
            if len(narrower) >= left:
                current = _slim(current, step, order, problem)
                break
            scores = yield problem.widths(narrower)
            left -= len(narrower)
            ranking = np.argsort(-np.array(scores), kind="stable")
            # If the evaluations run out, groups are narrowed further in the order in which it cost least in the last
            # round.
            order = [int(np.flatnonzero(narrower[i] != current)[0]) for i in ranking]
            current = narrower[ranking[0]]
        yield problem.widths(current[None])

    def _fitting_step(self, problem: Problem) -> int:
        """Return the smallest step with which even slimming of all groups reaches the budget within the evaluations."""
        groups = len(problem.sizes)
        most = int(problem.sizes.max())
        for step in range(1, most):
            current = problem.sizes - 1
            drops = 0
            while not problem.feasible(current[None])[0]:
                drops += int((current > 0).sum())
                current = np.maximum(current - step, 0)
            if drops * groups < self.evaluations:
                return step
        return most


def _narrow_each_group(current: IntArray, step: int) -> IntArray:
    """Return `current` with one group narrowed, for every group that can be, shape `(candidates, groups)`."""
    groups = np.flatnonzero(current > 0)
    table = np.tile(current, (len(groups), 1))
    table[np.arange(len(groups)), groups] = np.maximum(current[groups] - step, 0)
    return table


def _slim(current: IntArray, step: int, order: Sequence[int], problem: Problem) -> IntArray:
    """Return `current` narrowed group after group, in turns, until the budget is satisfied."""
    indices = current.copy()
    while True:
        for group in order:
            if problem.feasible(indices[None])[0]:
                return indices
            indices[group] = max(indices[group] - step, 0)
