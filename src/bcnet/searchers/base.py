"""Base class of searchers.

A searcher is a generator: it yields a list of candidates (a generation) and is sent their scores. The caller can score
a whole generation at once. A search is therefore a pure function of (space, budget, searcher, seed, scores), and
resuming it replays the stored evaluations.
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
"""Tournament criterion among the parents of an evolution."""


class Searcher(ABC):
    """A strategy that proposes candidates from the scores so far. Settings are fields of a frozen dataclass.

    Implement `limit` and `proposals`; `bcnet.testing` has the tests that every searcher must pass. Class attributes:
    `over_budget`: it also scores candidates over budget (as greedy search does). `exhaustive`: it finds every feasible
    candidate if there are fewer than its limit.
    """

    over_budget: ClassVar[bool] = False
    exhaustive: ClassVar[bool] = True

    @property
    @abstractmethod
    def limit(self) -> int:
        """Largest number of candidates that are scored."""

    @abstractmethod
    def proposals(self, problem: Problem) -> Proposals:
        """Yield lists of candidates and receive their scores in the same order, until there is nothing left to propose.

        All randomness derives from `problem.seed`. A repeated candidate gets its known score at no cost. If the limit
        falls inside a list, the generator is closed without the scores of that list.
        """

    def choose(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Candidate] | None:
        """Return feasible candidates, the best first; None to rank by score."""
        return None

    def further_proposals(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Widths]:
        """Return further widths to score for a tighter `problem` than that of the `candidates`; possibly none.

        Called if a latency search ends without a candidate that satisfies the limit as measured.
        """
        return []
