"""Searchers: proposals of candidates in, scores out.

A searcher is a generator of generations. It yields lists of candidates and is sent their scores; whoever drives it
scores a whole generation at once. A search is therefore a pure function of (space, budget, searcher, seed, scores), and
resuming replays it from stored evaluations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from bcnet.space import Widths
from bcnet.space.problem import Problem

if TYPE_CHECKING:
    from bcnet.searchers.result import Candidate

Proposals = Generator[list[Widths], list[float], None]
Tournament = Literal["score", "rank"]
"""What wins a tournament among the parents of an evolution."""


class Searcher(ABC):
    """A way to choose the next candidates from the scores so far. Settings are fields of a frozen dataclass.

    Implement `limit` and `proposals`; `bcnet.testing` has the tests that a searcher must pass. Class attributes:
    `over_budget` says that it scores candidates over budget on its way (greedy search does), `exhaustive` that it
    finds every feasible candidate where they are fewer than its limit.
    """

    over_budget: ClassVar[bool] = False
    exhaustive: ClassVar[bool] = True

    @property
    @abstractmethod
    def limit(self) -> int:
        """Most candidates that are scored."""

    @abstractmethod
    def proposals(self, problem: Problem) -> Proposals:
        """Yield lists of candidates and receive their scores, in the same order, until there is nothing to propose.

        All randomness comes from `problem.seed`. A candidate met before gets its known score again, at no cost. The
        generator is closed, with the scores of its last list withheld, where the limit falls inside a list.
        """

    def choose(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Candidate] | None:
        """Scored candidates within the budget, the best first; None where their scores decide."""
        return None

    def further(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Widths]:
        """Widths to score next within a narrower `problem` than the one that the `candidates` are of; maybe none.

        It is asked where a search by latency ends with none that keeps to it as measured.
        """
        return []
