"""Score model: scores as a sum over groups, linear in the logarithms of their widths.

Notation: `u_g = log c_g`, and `phi_p(c)` is the objective of the balanced widths (`bcnet.space.balance`) with exponent
`p`. Both are standardised over the scored candidates:

    score(c) = phi_p(c) * a + sum_g b_g u_g + noise,   a ~ N(0, G / lambda),   b_g ~ N(0, 1 / lambda)

Scores are nearly additive in log width, and noisy, so a model of all candidates predicts one of them better than its
own score does. A priori the closed form, which depends on neither data nor weights, and the groups' own terms explain
equal shares. `lambda` and the noise maximise the evidence (scikit-learn's `BayesianRidge`); `p` minimises the
leave-one-out error. A wider group is never worse: negative slopes are replaced by a small positive value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from bcnet.space import Widths, WidthSpace
from bcnet.space.balance import LogSum, optimum, weighted_layers
from bcnet.space.problem import Problem

FloatArray = npt.NDArray[np.float64]

EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
_HARDLY = 0.02  # smallest slope of a group, as a share of the mean slope
_VARIED = 0.01  # smallest spread of log widths, as a share of the usual one, that counts as variation
_BISECTIONS = 20
_EXCHANGES = 50
FEWEST = 4  # fewest scores for a fit in a search and in reports
_AT_ONCE = 1000  # exchanges evaluated at once
_FARTHEST = 3  # largest number of choices by which a group is narrowed in an exchange


@dataclass(frozen=True)
class ScoreModel:
    """A fit to scores. Slopes are per unit of log width, in standard deviations of the scores.

    `own` and `covariance` are the posterior mean and covariance of the slopes from the candidates' scores. `closed` are
    the slopes of the closed form alone, scaled to the scores. `trust`, from 0 to 1, weighs the scores against the
    closed form. `r2` is the leave-one-out R² of `own`, at least 0.
    """

    exponent: float
    trust: float
    own: FloatArray  # (groups,)
    covariance: FloatArray  # (groups, groups)
    closed: FloatArray  # (groups,)
    r2: float

    @classmethod
    def fit(cls, space: WidthSpace, candidates: Sequence[Widths], scores: Sequence[float], trust: float) -> ScoreModel:
        """Fit the model to at least two scored candidates."""
        logs = np.log(np.array(candidates, dtype=np.float64))
        values = np.array(scores, dtype=np.float64)
        values = (values - values.mean()) / max(float(values.std()), 1e-12)
        fits = [_Fit.of(space, logs, values, exponent) for exponent in EXPONENTS]
        best = min(fits, key=lambda fit: fit.error)
        return cls(best.exponent, trust, best.slopes, best.covariance, best.closed, max(0.0, 1 - best.error))

    @cached_property
    def slopes(self) -> FloatArray:
        """Return the expected slope of each group, `(groups,)`."""
        return self._mix(self.own)

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """Return slopes sampled from the posterior, `(groups,)`."""
        return self._mix(rng.multivariate_normal(self.own, self.covariance, method="eigh"))

    def predict(self, candidates: Sequence[Widths]) -> FloatArray:
        """Return expected scores, up to a constant, `(candidates,)`."""
        return np.asarray(np.log(np.array(candidates, dtype=np.float64)) @ self.slopes)

    def _mix(self, own: FloatArray) -> FloatArray:
        slopes = self.trust * own + (1 - self.trust) * self.closed
        return np.maximum(slopes, _HARDLY * max(float(np.abs(slopes).mean()), 1e-12))


@dataclass(frozen=True)
class _Fit:
    """The fit for one exponent; `error` is the leave-one-out error."""

    exponent: float
    error: float
    slopes: FloatArray
    covariance: FloatArray
    closed: FloatArray

    @classmethod
    def of(cls, space: WidthSpace, logs: FloatArray, values: FloatArray, exponent: float) -> _Fit:
        from sklearn.linear_model import BayesianRidge  # takes half a second to import

        groups = logs.shape[1]
        slope = closed_slopes(space, exponent)
        # Features of log widths: the closed form, then the groups. All are standardised except the closed form, which
        # is scaled up so that its coefficient explains as much a priori as those of all groups together.
        maps = np.vstack([slope, np.eye(groups)])
        centred = logs - logs.mean(axis=0)
        spreads = (centred @ maps.T).std(axis=0)
        typical = max(float(spreads[1:].mean()), 1e-9)
        # A group that has not varied yet is as uncertain as the others, not infinitely more.
        spreads = np.where(spreads < _VARIED * typical, typical, spreads)
        scale = spreads / np.append(np.sqrt(groups), np.ones(groups))
        features = centred @ maps.T / scale
        fit = BayesianRidge(fit_intercept=False).fit(features, values)
        back = (maps / scale[:, None]).T  # (groups, features): slopes from coefficients
        hat = fit.alpha_ * features @ fit.sigma_ @ features.T
        left_out = (values - features @ fit.coef_) / np.maximum(1 - np.diag(hat), 1e-6)
        spread = float((centred @ slope).std())
        steep = float(np.std(features @ fit.coef_)) or 1.0
        return cls(
            exponent,
            float(np.mean(left_out**2)),
            back @ fit.coef_,
            back @ fit.sigma_ @ back.T,
            slope * steep / max(spread, 1e-12),
        )


def closed_slopes(space: WidthSpace, exponent: float) -> FloatArray:
    """Return the gradient `(groups,)` of the balanced widths' objective with respect to log widths, at full width.

    In a space without layers all groups are equal.
    """
    full = np.log(np.array(space.full, dtype=np.float64))
    slopes = [weight * log_macs(full)[1] for weight, log_macs in weighted_layers(space, exponent)]
    return np.sum(slopes, axis=0) if slopes else np.full(len(full), 1.0 / len(full))


def best_widths(problem: Problem, slopes: FloatArray) -> Widths:
    """Return the choices within the budget that maximise `sum_g slopes_g log c_g`.

    The optimum over real widths is rounded down to choices. These are widened in order of gain per cost, then exchanged
    between groups while that gains.
    """
    space = problem.space
    terms = [(1.0, LogSum(np.zeros(1), slopes[None]))]  # the sum itself, as a log-sum-exp of one term
    low = 0.0
    high = 1.0
    found = np.zeros(len(space.groups), dtype=np.int64)
    for step in range(_BISECTIONS):
        # Start with the whole budget; a limit that is not a polynomial may need a tighter one.
        middle = 1.0 if step == 0 else (low + high) / 2
        tried = floor_indices(problem, optimum(space, terms, problem.budget, middle, space.narrowest))
        if problem.feasible(tried[None])[0]:
            low = middle
            found = tried
        else:
            high = middle
        if low == 1.0 or high - low < 0.01:
            break
    current = _filled_up(problem, found, slopes)
    for _ in range(_EXCHANGES):
        better = _exchange(problem, current, slopes)
        if better is None:
            break
        current = _filled_up(problem, better, slopes)
    return problem.widths(current[None])[0]


def floor_indices(problem: Problem, widths: FloatArray) -> npt.NDArray[np.int64]:
    """Return the indices of the widest choices not above `widths`, `(groups,)`; 0 if all choices are wider."""
    choices = [np.array(group.choices) for group in problem.space.groups]
    found = [int(np.searchsorted(c, w * (1 + 1e-9), side="right")) - 1 for c, w in zip(choices, widths, strict=True)]
    return np.maximum(np.array(found, dtype=np.int64), 0)


def _filled_up(problem: Problem, indices: npt.NDArray[np.int64], slopes: FloatArray) -> npt.NDArray[np.int64]:
    logs = _logs(problem)
    current = indices.copy()
    while True:
        steps = current + np.eye(len(current), dtype=np.int64)
        open_ = np.flatnonzero(current + 1 < problem.sizes)
        open_ = open_[problem.feasible(steps[open_])]
        if not len(open_):
            return current
        loads = problem.load(steps[open_]) - problem.load(current[None])
        gains = slopes[open_] * (logs[open_, current[open_] + 1] - logs[open_, current[open_]])
        current = steps[open_[int(np.argmax(gains / np.maximum(loads, 1e-12)))]]


def _exchange(problem: Problem, current: npt.NDArray[np.int64], slopes: FloatArray) -> npt.NDArray[np.int64] | None:
    """Return the best feasible candidate with one group wider and another narrower; None if none is better."""
    groups = np.arange(len(current))
    steps = np.arange(1, _FARTHEST + 1)
    up, down, by, given = (axis.ravel() for axis in np.meshgrid(groups, groups, steps, steps, indexing="ij"))
    may = (up != down) & (current[up] + by < problem.sizes[up]) & (current[down] >= given)
    up = up[may]
    down = down[may]
    by = by[may]
    given = given[may]
    logs = _logs(problem)
    gains = slopes[up] * (logs[up, current[up] + by] - logs[up, current[up]])
    gains -= slopes[down] * (logs[down, current[down]] - logs[down, current[down] - given])
    order = np.argsort(-gains, kind="stable")
    order = order[gains[order] > 1e-9]
    for some in np.array_split(order, max(1, len(order) // _AT_ONCE)):  # the first feasible one is the best
        tried = np.tile(current, (len(some), 1))
        rows = np.arange(len(some))
        tried[rows, up[some]] += by[some]
        tried[rows, down[some]] -= given[some]
        holds = np.flatnonzero(problem.feasible(tried))
        if len(holds):
            return np.asarray(tried[holds[0]])
    return None


def _logs(problem: Problem) -> FloatArray:
    """Return the logarithms of the choices, `(groups, most choices)`, short rows padded with their last value."""
    found = np.empty((len(problem.sizes), int(problem.sizes.max())))
    for row, group in zip(found, problem.space.groups, strict=True):
        row[: len(group.choices)] = np.log(group.choices)
        row[len(group.choices) :] = row[len(group.choices) - 1]
    return found
