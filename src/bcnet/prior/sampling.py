"""Draw an initial population from independent rows, within the budget and without duplicates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bcnet.prior.expected_cost import Rows
from bcnet.space import Widths
from bcnet.space.problem import IntArray, Problem

_ROUNDS = 20


@dataclass(frozen=True)
class PriorSample:
    """A population, and statistics of how it was drawn.

    `within_budget` is the share of the first draws that satisfied the budget, `duplicates` the share of these that had
    been drawn before. `topped_up` counts the random widths added because the prior yielded no more. There are fewer
    widths than requested only if the space has no more feasible candidates.
    """

    widths: tuple[Widths, ...]
    within_budget: float
    duplicates: float
    topped_up: int
    asked: int

    @property
    def note(self) -> str:
        """A sentence for the user; empty if the prior yielded the whole population."""
        if len(self.widths) < self.asked:
            return f"only {len(self.widths)} candidates satisfy the budget; {self.asked} were asked for"
        if self.topped_up:
            return (
                f"the prior gave {len(self.widths) - self.topped_up} distinct candidates within the budget in "
                f"{_ROUNDS} rounds; the other {self.topped_up} of {self.asked} are random ones near the budget"
            )
        return ""


def draw(rows: Rows, count: int, rng: np.random.Generator) -> IntArray:
    """Draw choice indices `(count, groups)`, every group independently from its row."""
    columns = [np.searchsorted(np.cumsum(row), rng.random(count), side="right") for row in rows]
    # A cumulative sum may end slightly below 1; draws above it take the last width of positive probability.
    highest = [int(np.flatnonzero(row)[-1]) for row in rows]
    return np.minimum(np.stack(columns, axis=1), highest).astype(np.int64)


def sample_population(rows: Rows, problem: Problem, count: int, rng: np.random.Generator) -> PriorSample:
    """Draw `count` distinct feasible candidates from `rows` by rejection, with a bounded number of tries."""
    found: dict[Widths, None] = {}
    within = 0.0
    duplicates = 0.0
    for attempt in range(_ROUNDS):
        indices = draw(rows, count, rng)
        drawn = problem.widths(indices[problem.feasible(indices)])
        if attempt == 0:
            within = len(drawn) / count
            duplicates = 1 - len(set(drawn)) / len(drawn) if drawn else 0.0
        found.update(dict.fromkeys(drawn))
        if len(found) >= count:
            break
    kept = list(found)[:count]
    # A concentrated prior has too few distinct candidates; random ones near the budget fill the population.
    more = problem.fill(count - len(kept), found, rng) if len(kept) < count else []
    return PriorSample((*kept, *more), within, duplicates, len(more), count)
