"""Search by a model of the scores: few candidates, each promising or informative under the model."""

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

TRUST_IN_PATHS = 0.5  # weight of shared-weight scores beside the closed form


@dataclass(frozen=True)
class ModelBased(Searcher):
    """Candidates proposed by a score model that is fitted again after each batch (`bcnet.searchers.score_model`).

    The first batch holds the balanced and the Uniform widths, balanced widths of other exponents, and random widths
    near the budget. Each later batch holds the model's optimum under the budget, optima of samples from its posterior,
    and as many random widths. The final choice is the candidate with the highest expected score, not the highest score:
    the highest of many noisy scores is mostly luck. `trust` is the weight of the scores beside the closed form: 1 if
    their errors average out, less if they do not, as with shared weights.

    A model that is linear in log widths is valid only near the best widths, since further width gives diminishing
    returns. With a `reach` above 1 all proposals but the optimum therefore stay within that factor of the best
    candidate so far, group by group (a trust region, as in TuRBO: Eriksson et al., NeurIPS 2019). The choice is then by
    the mean of a candidate's expected and its measured score, which includes nonlinear effects. `reach=0` sets no
    limit.

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
                f"evaluations of ModelBased must be at least 1, a batch of it at least {FEWEST}; got "
                f"{self.evaluations} and {self.batch}"
            )
        if not 0 <= self.trust <= 1:
            raise SearchError(f"trust of ModelBased must be in [0, 1]; got {self.trust}")
        if self.reach != 0 and not 1 < self.reach < math.inf:
            raise SearchError(f"reach of ModelBased must be a factor above 1, or 0 for anywhere; got {self.reach}")

    @property
    def limit(self) -> int:
        """Number of evaluations."""
        return self.evaluations

    def proposals(self, problem: Problem) -> Proposals:
        """Yield one batch after the other (see `Searcher`)."""
        rng = np.random.default_rng([problem.seed, 6])
        known: dict[Widths, float] = {}
        batch = self._propose_first(problem, rng)
        while batch:
            scores = yield batch
            known.update(zip(batch, scores, strict=True))
            batch = self._propose_next(problem, known, rng)

    def _propose_next(self, problem: Problem, known: Mapping[Widths, float], rng: np.random.Generator) -> list[Widths]:
        """Return optima of the model and of its posterior samples, and random widths."""
        # A candidate whose score is not finite is known, so it is not proposed again, but tells the model nothing.
        usable = {widths: score for widths, score in known.items() if np.isfinite(score)}
        if len(usable) < FEWEST:
            return problem.fill(self.batch, known, rng)
        model = ScoreModel.fit(problem.space, list(usable), list(usable.values()), self.trust)
        near = problem
        if self.reach:
            expected = self._expect_scores(model, list(usable), list(usable.values()))
            near = _restrict_around(problem, list(usable)[int(np.argmax(expected))], self.reach)
        drawn = [best_widths(near, model.draw(rng)) for _ in range(self.batch // 2)]
        # The optimum may lie outside the trusted region: one trial shows whether the model extrapolates well.
        wanted = [best_widths(problem, model.slopes), *drawn]
        batch = [widths for widths in dict.fromkeys(wanted) if widths not in known]
        if near is not problem:
            batch += near.fill(self.batch - len(batch), {*known, *batch}, rng)
        # Random widths of the whole space fill what is left, so that the model is not fitted to its own optima alone.
        return batch + problem.fill(self.batch - len(batch), {*known, *batch}, rng)

    def further_proposals(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Widths]:
        """Return the next batch for `problem` (see `Searcher`)."""
        known = {c.widths: c.score for c in candidates}
        return self._propose_next(problem, known, np.random.default_rng([problem.seed, 7, len(known)]))

    def _expect_scores(self, model: ScoreModel, candidates: Sequence[Widths], scores: Sequence[float]) -> FloatArray:
        """Return expected scores of scored candidates, up to a constant, in standard deviations of the scores."""
        predicted = model.predict(candidates)
        if not self.reach:
            return predicted
        # Both terms in the same units: predictions are standardised too.
        own = (np.array(scores) - np.mean(scores)) / max(float(np.std(scores)), 1e-12)
        return np.asarray((predicted - predicted.mean() + own) / 2)

    def _propose_first(self, problem: Problem, rng: np.random.Generator) -> list[Widths]:
        """Return widths that need no scores, and random ones for as many as there are groups, at least a batch."""
        found = dict.fromkeys(best_widths(problem, closed_slopes(problem.space, p)) for p in EXPONENTS)
        found[_uniform_choices(problem)] = None
        count = min(max(2 * self.batch, len(problem.sizes)), max(FEWEST, self.evaluations // 2))
        if count < len(found):  # the baselines come before other exponents
            found = dict.fromkeys((*heuristic_widths(problem).values(), *found))
        kept = list(found)[:count]
        return kept + problem.fill(count - len(kept), kept, rng)

    def choose(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the feasible candidates, the highest expected score first (see `Searcher`)."""
        usable = [c for c in candidates if np.isfinite(c.score)]
        if len(usable) < FEWEST:
            return sorted(usable, key=lambda c: -c.score)
        widths = [c.widths for c in usable]
        scores = [c.score for c in usable]
        expected = self._expect_scores(ScoreModel.fit(problem.space, widths, scores, self.trust), widths, scores)
        return [usable[int(number)] for number in np.argsort(-expected, kind="stable")]


def _restrict_around(problem: Problem, centre: Widths, reach: float) -> Problem:
    """Return the problem restricted to choices within a factor `reach` of `centre`."""
    groups = tuple(
        dataclasses.replace(group, choices=tuple(c for c in group.choices if width / reach <= c <= width * reach))
        for group, width in zip(problem.space.groups, centre, strict=True)
    )
    return Problem(dataclasses.replace(problem.space, groups=groups), problem.budget, problem.seed)


def heuristic_widths(problem: Problem) -> dict[str, Widths]:
    """Return feasible widths that need no search, by name: the balanced and the Uniform ones.

    Source: the closed form of `bcnet.space.balance` with its default exponent.
    """
    return {
        "balanced": best_widths(problem, closed_slopes(problem.space, BALANCE_EXPONENT)),
        "Uniform": _uniform_choices(problem),
    }


def _uniform_choices(problem: Problem) -> Widths:
    """Return the Uniform widths rounded down to choices; a group whose choices are all wider takes its first."""
    uniform = floor_indices(problem, np.array(problem.space.uniform(problem.budget), dtype=np.float64))
    return problem.widths(uniform[None])[0] if problem.feasible(uniform[None])[0] else problem.space.narrowest
