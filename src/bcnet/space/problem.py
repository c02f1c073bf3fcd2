"""The problem that searchers solve: the candidates of a space under a budget, as arrays of choice indices.

Notation: `indices` are int arrays `(candidates, groups)`; entry `[n, g]` is an index into the ascending choices of
group `g`. The load of a candidate is its cost as a share of the budget, the largest share if there are several limits.
A candidate is feasible if its load is at most 1. Costs increase with every width, so lowering an index never raises the
load.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count as numbers
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from bcnet.costs import Budget
from bcnet.errors import SearchError
from bcnet.space.space import Widths, WidthSpace

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
Item = TypeVar("Item")

NEAR_BUDGET = 0.97  # random widths cost between this share of the budget and all of it (spec, section 5)
_BISECTIONS = 20


class Remembered(Generic[Item]):
    """An iterator that can be iterated again: items are kept, and only new ones are taken from the source."""

    def __init__(self, source: Iterator[Item]) -> None:
        self._source = source
        self._met: list[Item] = []

    def __iter__(self) -> Iterator[Item]:
        for position in numbers():
            if position == len(self._met):
                try:
                    self._met.append(next(self._source))
                except StopIteration:
                    return
            yield self._met[position]


@dataclass(frozen=True)
class Problem:
    """A space, a budget in absolute counts that its narrowest network satisfies, and the seed of the search.

    `notes` collects remarks for the user, for instance that a population was filled up randomly.
    """

    space: WidthSpace
    budget: Budget
    seed: int = 0
    notes: list[str] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, space: WidthSpace, budget: Budget, seed: int = 0) -> Problem:
        """Resolve and check the budget.

        Raises:
            BudgetError: the narrowest network of the space costs more, or not a budget.
            SearchError: the seed is not a non-negative int.
        """
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise SearchError(f"the seed of a search must be an int of at least 0; got {seed!r}")
        limits = space.feasible(budget)
        return cls(space.with_measures(budget), limits, seed)

    @cached_property
    def sizes(self) -> IntArray:
        """Number of choices of every group, shape `(groups,)`."""
        return np.array([len(group.choices) for group in self.space.groups], dtype=np.int64)

    @cached_property
    def _choices(self) -> IntArray:  # (groups, most choices), short rows padded with their last entry
        table = np.empty((len(self.sizes), int(self.sizes.max())), dtype=np.int64)
        for row, group in zip(table, self.space.groups, strict=True):
            row[: len(group.choices)] = group.choices
            row[len(group.choices) :] = group.choices[-1]
        return table

    @cached_property
    def _positions(self) -> list[dict[int, int]]:
        return [{choice: i for i, choice in enumerate(group.choices)} for group in self.space.groups]

    def widths(self, indices: IntArray) -> list[Widths]:
        """Return the candidates of `indices`, shape `(candidates, groups)`."""
        return [tuple(row) for row in self._widths_array(indices).tolist()]

    def indices(self, candidates: Sequence[Widths]) -> IntArray:
        """Return the choice indices of `candidates`, shape `(candidates, groups)`."""
        rows = [[position[w] for position, w in zip(self._positions, c, strict=True)] for c in candidates]
        return np.array(rows, dtype=np.int64).reshape(len(candidates), len(self.sizes))

    def _widths_array(self, indices: IntArray) -> IntArray:
        return self._choices[np.arange(len(self.sizes)), indices]

    def _costs(self, indices: IntArray) -> list[tuple[IntArray, float]]:
        """Return each limited cost, `(candidates,)`, with its limit, without validating the widths."""
        widths = self._widths_array(indices)
        return [(measure.values(self.space, widths), limit) for measure, limit in self.budget.limits.items()]

    def feasible(self, indices: IntArray) -> BoolArray:
        """Return which candidates satisfy the budget, shape `(candidates,)`."""
        if len(indices) == 0:
            return np.zeros(0, dtype=bool)
        return np.asarray(np.all([values <= limit for values, limit in self._costs(indices)], axis=0))

    def load(self, indices: IntArray) -> FloatArray:
        """Return the cost as a share of the budget, the largest over all limits, shape `(candidates,)`."""
        return np.asarray(np.max([values / limit for values, limit in self._costs(indices)], axis=0))

    def draw_uniform(self, count: int, rng: np.random.Generator) -> IntArray:
        """Draw every index independently and uniformly, feasible or not, shape `(count, groups)`."""
        return rng.integers(self.sizes, size=(count, len(self.sizes)))

    def near_budget(self, count: int, rng: np.random.Generator) -> IntArray:
        """Draw feasible random candidates, `(count, groups)`, with a load in `[0.97, 1]` if the choices allow it.

        A uniform draw is widened or narrowed as a whole by the largest feasible shift. Then single groups, in random
        order, are widened by one choice while the budget is satisfied.
        """
        position = rng.random((count, len(self.sizes))) * self.sizes - 0.5
        indices = self._shifted_to_budget(position)
        order = rng.permuted(np.tile(np.arange(len(self.sizes)), (count, 1)), axis=1)
        rows = np.arange(count)
        for column in (*order.T, *order.T):
            wider = indices.copy()
            wider[rows, column] = np.minimum(wider[rows, column] + 1, self.sizes[column] - 1)
            take = self.feasible(wider) & (self.load(indices) < NEAR_BUDGET)
            if not take.any() and (self.load(indices) >= NEAR_BUDGET).all():
                break
            indices[take] = wider[take]
        return indices

    def _shifted_to_budget(self, position: FloatArray) -> IntArray:
        low = np.full((len(position), 1), -1.0)  # every index 0, which is feasible
        high = np.ones((len(position), 1))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            holds = self.feasible(self._round(position + middle * self.sizes))[:, None]
            low = np.where(holds, middle, low)
            high = np.where(holds, high, middle)
        return self._round(position + low * self.sizes)

    def _round(self, position: FloatArray) -> IntArray:
        return np.clip(np.rint(position), 0, self.sizes - 1).astype(np.int64)

    def from_narrowest(self) -> Iterator[Widths]:
        """Iterate over every feasible candidate once, from the narrowest outwards (breadth first)."""
        return iter(self._from_narrowest)

    @cached_property
    def _from_narrowest(self) -> Remembered[Widths]:
        return Remembered(self._walk())

    def _walk(self) -> Iterator[Widths]:
        start = (0,) * len(self.sizes)
        queue = deque([start])
        met = {start}
        while queue:
            index = queue.popleft()
            yield self.widths(np.array([index]))[0]
            steps = np.array(index) + np.eye(len(self.sizes), dtype=np.int64)
            steps = steps[(steps < self.sizes).all(axis=1)]
            for step in map(tuple, steps[self.feasible(steps)].tolist()):
                if step not in met:
                    met.add(step)
                    queue.append(step)

    def fill(self, count: int, known: Collection[Widths], rng: np.random.Generator, tries: int = 5) -> list[Widths]:
        """Return up to `count` distinct feasible candidates that are not in `known`; fewer only if there are no more.

        First random draws near the budget, then uniform draws below it. If `tries` rounds of each do not suffice, all
        feasible candidates in order.
        """
        found: dict[Widths, None] = {}
        for attempt in range(2 * tries):
            draw = self.near_budget if attempt < tries else self.draw_uniform
            indices = draw(max(2 * (count - len(found)), 8), rng)
            fresh = (w for w in self.widths(indices[self.feasible(indices)]) if w not in known)
            found.update(dict.fromkeys(fresh))
            if len(found) >= count:
                return list(found)[:count]
        # Few candidates are left, which draws are unlikely to hit: list them.
        for widths in self.from_narrowest():
            if widths not in known:
                found[widths] = None
            if len(found) >= count:
                break
        return list(found)[:count]
