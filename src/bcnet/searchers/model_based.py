"""Search by a model of the scores: few candidates, each where the model expects the most or knows the least."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bcnet.errors import SearchError
from bcnet.searchers.base import Proposals, Searcher
from bcnet.searchers.result import Candidate
from bcnet.searchers.score_model import (
    EXPONENTS,
    FEWEST,
    FloatArray,
    ScoreModel,
    best_widths,
    closed_slopes,
    floor_indices,
)
from bcnet.space import Widths
from bcnet.space.options import BALANCE_EXPONENT
from bcnet.space.problem import Problem

TRUST_IN_PATHS = 0.5  # what scores of shared weights count beside the closed form


@dataclass(frozen=True)
class ModelBased(Searcher):
    """Candidates that a score model proposes, fitted anew after each batch (`bcnet.searchers.score_model`).

    The first batch has the balanced and the Uniform widths, the balanced ones of other exponents, and random ones near
    the budget. Each of the others has the model's optimum under the budget, optima of samples of its posterior, as many
    as random widths. Of the candidates that one is chosen which the model expects the most of, whatever its own score:
    of many noisy scores the highest is mostly luck. `trust` is what scores count beside the closed form, 1 where they
    are right but for noise, less where they are off in ways that more of them do not mend, as those of shared weights
    are.

    A model that is linear in log widths holds near the best ones only, beyond which more width is worth less and less.
    With a `reach` above 1 all but the optimum itself therefore stay within that factor of the best candidate so far,
    group by group (a trust region, as in TuRBO: Eriksson et al., NeurIPS 2019), and the choice is by the mean of what
    the model expects of a candidate and its own score, which knows what is not linear. 0 is anywhere, by the model.

    Example: `ModelBased(evaluations=32, reach=1.4)`

    Raises:
        SearchError: a setting out of range.
    """

    evaluations: int = 200
    batch: int = 8
    trust: float = 1.0
    reach: float = 0.0

    def __post_init__(self) -> None:
        if self.evaluations < 1 or self.batch < FEWEST:
            raise SearchError(
                f"evaluations of ModelBased are at least 1, a batch of it at least {FEWEST}; got {self.evaluations} "
                f"and {self.batch}"
            )
        if not 0 <= self.trust <= 1:
            raise SearchError(f"trust of ModelBased is in [0, 1]; got {self.trust}")
        if self.reach != 0 and not 1 < self.reach < math.inf:
            raise SearchError(f"reach of ModelBased is a factor above 1, or 0 for anywhere; got {self.reach}")

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
            batch = self._next(problem, known, rng)

    def _next(self, problem: Problem, known: Mapping[Widths, float], rng: np.random.Generator) -> list[Widths]:
        """Optima of the model of what is known and of samples of it, and random widths."""
        usable = {widths: score for widths, score in known.items() if np.isfinite(score)}
        if len(usable) < FEWEST:
            return problem.fill(self.batch, known, rng)
        model = ScoreModel.fit(problem.space, list(usable), list(usable.values()), self.trust)
        near = problem
        if self.reach:
            expected = self._expect_scores(model, list(usable), list(usable.values()))
            near = _around(problem, list(usable)[int(np.argmax(expected))], self.reach)
        drawn = [best_widths(near, model.draw(rng)) for _ in range(self.batch // 2)]
        wanted = [best_widths(problem, model.slopes), *drawn]
        batch = [widths for widths in dict.fromkeys(wanted) if widths not in known]
        if near is not problem:
            batch += near.fill(self.batch - len(batch), {*known, *batch}, rng)
        return batch + problem.fill(self.batch - len(batch), {*known, *batch}, rng)

    def further(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Widths]:
        """The next batch there (see `Searcher`)."""
        known = {c.widths: c.score for c in candidates}
        return self._next(problem, known, np.random.default_rng([problem.seed, 7, len(known)]))

    def _expect_scores(self, model: ScoreModel, candidates: Sequence[Widths], scores: Sequence[float]) -> FloatArray:
        """Return what is expected of scored candidates, up to a constant, in standard deviations of the scores."""
        predicted = model.predict(candidates)
        if not self.reach:
            return predicted
        own = (np.array(scores) - np.mean(scores)) / max(float(np.std(scores)), 1e-12)
        return np.asarray((predicted - predicted.mean() + own) / 2)

    def _first(self, problem: Problem, rng: np.random.Generator) -> list[Widths]:
        """Return what needs no scores, and random widths for as many as there are groups, a batch at least."""
        found = dict.fromkeys(best_widths(problem, closed_slopes(problem.space, p)) for p in EXPONENTS)
        found[_uniform(problem)] = None
        count = min(max(2 * self.batch, len(problem.sizes)), max(FEWEST, self.evaluations // 2))
        if count < len(found):  # what a search is held against comes before other exponents
            found = dict.fromkeys((*heuristic_widths(problem).values(), *found))
        kept = list(found)[:count]
        return kept + problem.fill(count - len(kept), kept, rng)

    def choose(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return those within the budget by what is expected of them, the best first (see `Searcher`)."""
        usable = [c for c in candidates if np.isfinite(c.score)]
        if len(usable) < FEWEST:
            return sorted(usable, key=lambda c: -c.score)
        widths = [c.widths for c in usable]
        scores = [c.score for c in usable]
        expected = self._expect_scores(ScoreModel.fit(problem.space, widths, scores, self.trust), widths, scores)
        return [usable[int(number)] for number in np.argsort(-expected, kind="stable")]


def _around(problem: Problem, centre: Widths, reach: float) -> Problem:
    """Return the same with the choices alone that differ from `centre` by a factor of `reach` at most."""
    groups = tuple(
        dataclasses.replace(group, choices=tuple(c for c in group.choices if width / reach <= c <= width * reach))
        for group, width in zip(problem.space.groups, centre, strict=True)
    )
    return Problem(dataclasses.replace(problem.space, groups=groups), problem.budget, problem.seed)


def heuristic_widths(problem: Problem) -> dict[str, Widths]:
    """Widths that need no search, in choices within the budget, by name: the balanced and the Uniform ones.

    Source: the closed form of `bcnet.space.balance`, of the usual exponent.
    """
    return {
        "balanced": best_widths(problem, closed_slopes(problem.space, BALANCE_EXPONENT)),
        "Uniform": _uniform(problem),
    }


def _uniform(problem: Problem) -> Widths:
    """The Uniform widths down to the next choices; the narrowest where a group's first choice is wider than they."""
    uniform = floor_indices(problem, np.array(problem.space.uniform(problem.budget), dtype=np.float64))
    return problem.widths(uniform[None])[0] if problem.feasible(uniform[None])[0] else problem.space.narrowest
