"""Search by a model of the scores: few candidates, each where the model expects the most or knows the least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnet.errors import SearchError
from bcnet.searchers.base import Proposals, Searcher
from bcnet.searchers.result import Candidate
from bcnet.searchers.score_model import EXPONENTS, ScoreModel, best_widths, closed_slopes, floored
from bcnet.space import Widths
from bcnet.space.options import BALANCE_EXPONENT
from bcnet.space.problem import Problem

TRUST_IN_PATHS = 0.5  # what scores of shared weights count beside the closed form
_LEAST = 4  # scores that a model is fitted to


@dataclass(frozen=True)
class ModelBased(Searcher):
    """Candidates that a score model proposes, fitted anew after each batch (`bcnet.searchers.score_model`).

    The first batch has the balanced and the Uniform widths, the balanced ones of other exponents, and random ones near
    the budget. Each of the others has the model's optimum under the budget, optima of samples of its posterior, as many
    as random widths. Of the candidates that one is chosen which the model expects the most of, whatever its own score:
    of many noisy scores the highest is mostly luck. `trust` is what scores count beside the closed form, 1 where they
    are right but for noise, less where they are off in ways that more of them do not mend, as those of shared weights
    are.

    Example: `ModelBased(evaluations=32)`

    Raises:
        SearchError: a setting out of range.
    """

    evaluations: int = 200
    batch: int = 8
    trust: float = 1.0

    def __post_init__(self) -> None:
        if self.evaluations < 1 or self.batch < _LEAST:
            raise SearchError(
                f"evaluations of ModelBased are at least 1, a batch of it at least {_LEAST}; got {self.evaluations} "
                f"and {self.batch}"
            )
        if not 0 <= self.trust <= 1:
            raise SearchError(f"trust of ModelBased is in [0, 1]; got {self.trust}")

    @property
    def limit(self) -> int:
        """Evaluations, as set."""
        return self.evaluations

    def proposals(self, problem: Problem) -> Proposals:
        """Yield one batch after the other (see `Searcher`)."""
        rng = np.random.default_rng([problem.seed, 6])
        known: dict[Widths, float] = {}
        batch = self._first(problem, rng)
        while batch:
            scores = yield batch
            known.update(zip(batch, scores, strict=True))
            usable = {widths: score for widths, score in known.items() if np.isfinite(score)}
            if len(usable) < _LEAST:
                batch = problem.fill(self.batch, known, rng)
                continue
            model = ScoreModel.fit(problem.space, list(usable), list(usable.values()), self.trust)
            drawn = (best_widths(problem, model.drawn(rng)) for _ in range(self.batch // 2))
            wanted = [best_widths(problem, model.slopes), *drawn]
            batch = [widths for widths in dict.fromkeys(wanted) if widths not in known]
            batch += problem.fill(self.batch - len(batch), {*known, *batch}, rng)

    def _first(self, problem: Problem, rng: np.random.Generator) -> list[Widths]:
        """What needs no scores, and random widths for as many as there are groups, a batch at least."""
        found = dict.fromkeys(best_widths(problem, closed_slopes(problem.space, p)) for p in EXPONENTS)
        found[_uniform(problem)] = None
        count = min(max(2 * self.batch, len(problem.sizes)), max(_LEAST, self.evaluations // 2))
        if count < len(found):  # what a search is held against comes before other exponents
            found = dict.fromkeys((*heuristic_widths(problem).values(), *found))
        kept = list(found)[:count]
        return kept + problem.fill(count - len(kept), kept, rng)

    def chosen(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those within the budget by what the model expects of them, the best first (see `Searcher`)."""
        usable = [c for c in candidates if np.isfinite(c.score)]
        if len(usable) < _LEAST:
            return sorted(usable, key=lambda c: -c.score)
        scores = [c.score for c in usable]
        model = ScoreModel.fit(problem.space, [c.widths for c in usable], scores, self.trust)
        expected = model.predicted([c.widths for c in usable])
        return [usable[int(number)] for number in np.argsort(-expected, kind="stable")]


def heuristic_widths(problem: Problem) -> dict[str, Widths]:
    """Widths that need no search, in choices within the budget, by name: the balanced and the Uniform ones.

    Source: the closed form of `bcnet.space.balance`, of the usual exponent.
    """
    return {
        "balanced": best_widths(problem, closed_slopes(problem.space, BALANCE_EXPONENT)),
        "Uniform, in choices": _uniform(problem),
    }


def _uniform(problem: Problem) -> Widths:
    """The Uniform widths down to the next choices; the narrowest where a group's first choice is wider than they."""
    uniform = floored(problem, np.array(problem.space.uniform(problem.budget), dtype=np.float64))
    return problem.widths(uniform[None])[0] if problem.feasible(uniform[None])[0] else problem.space.narrowest
