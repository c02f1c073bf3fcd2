"""Prior over widths: from training records to an initial population (Eq. 12-14; spec, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bcnet.costs import Budget, measure_called
from bcnet.errors import SearchError
from bcnet.prior.certificate.qcqp import checked_errors, solve
from bcnet.prior.expected_cost import Rows, expected_costs, one_hot
from bcnet.prior.records import DEFAULT_RULE, DEFAULT_SINCE, Rule, potential_errors, select_records
from bcnet.prior.sampling import PriorSample, draw, sample_population
from bcnet.prior.smoothing import Smoothed, effective_widths
from bcnet.space import WidthSpace
from bcnet.space.problem import FloatArray, Problem

DEFAULT_EFFECTIVE_WIDTHS = 2.5  # the lowest value whose populations of 40 have few duplicates in 7 groups
_WITHIN = 0.45  # of a population of 40, 30 % then nearly always satisfy the budget at the first draw
_SAMPLES = 2000
_TIGHTENINGS = 4


@dataclass(frozen=True)
class Prior:
    """One probability vector over the widths of each group, with an expected cost within `budget` (absolute counts).

    `rows[g]` belongs to `space.groups[g].choices`. `errors` are the potential errors it was computed from.
    `temperature` is in their units. `lower_bound` and `gap` certify the optimum at temperature 0 (see `QCQPSolution`).
    """

    space: WidthSpace = field(repr=False)
    budget: Budget
    rows: Rows = field(repr=False)
    errors: Rows = field(repr=False)
    temperature: float
    lower_bound: float
    gap: float

    @property
    def effective_widths(self) -> float:
        """Mean of `exp(entropy)` over the groups."""
        return effective_widths(self.rows)

    def sample(self, count: int, budget: Budget, rng: np.random.Generator) -> PriorSample:
        """Return `count` distinct widths within `budget`, filled up with random ones if the prior yields too few.

        Fewer are returned only if the space has no more; `PriorSample.note` then says so.

        Raises:
            BudgetError: the narrowest network of the space costs more.
        """
        return sample_population(self.rows, Problem.of(self.space, budget), count, rng)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers for JSON; `from_dict` is the inverse."""
        return {
            "space": self.space.fingerprint(),
            "budget": {"macs": self.budget.macs, "params": self.budget.params} | _other_limits(self.budget),
            "rows": [row.tolist() for row in self.rows],
            "errors": [error.tolist() for error in self.errors],
            "temperature": self.temperature,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], space: WidthSpace) -> Prior:
        """Return the prior that `to_dict` wrote.

        Raises:
            SearchError: it was fitted for another space, or is incomplete.
        """
        if data.get("space") != space.fingerprint():
            raise SearchError(
                f"the prior was learnt for another space ({data.get('space')!r}, here {space.fingerprint()!r}): "
                "learn it anew"
            )
        try:
            return cls(
                space=space,
                budget=_budget(data["budget"], space),
                rows=_vectors(data["rows"], space, total=1.0),
                errors=_vectors(data["errors"], space),
                temperature=float(data["temperature"]),
                lower_bound=float(data["lower_bound"]),
                gap=float(data["gap"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SearchError(f"the prior cannot be read ({error!r}): learn it anew") from error


def _other_limits(budget: Budget) -> dict[str, Any]:
    return {measure.description: limit for measure, limit in budget.others.items()}


def _budget(limits: Mapping[str, Any], space: WidthSpace) -> Budget:
    """Return the budget of a document; custom measures are those that the space can count, or `Recorded`."""
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return Budget({measure_called(name, space.measures): limit for name, limit in given.items()})


def _vectors(lists: Any, space: WidthSpace, total: float | None = None) -> Rows:
    """Return one finite vector per group, of the length of its choices.

    If `total` is given, non-negative with that sum.
    """
    vectors = tuple(np.array(values, dtype=np.float64) for values in lists)
    if [v.shape for v in vectors] != [(len(group.choices),) for group in space.groups]:
        raise ValueError("one number for each choice of each group is needed")
    for vector in vectors:
        off = total is not None and (vector.min() < 0 or abs(vector.sum() - total) > 1e-6)
        if not np.isfinite(vector).all() or off:
            raise ValueError("a vector of numbers that cannot be")
    return vectors


def prior_of_errors(
    E: Sequence[FloatArray],
    space: WidthSpace,
    budget: Budget,
    *,
    effective_widths: float = DEFAULT_EFFECTIVE_WIDTHS,
    tightened: bool = True,
    seed: int = 0,
) -> Prior:
    """Return the entropy-smoothed prior of potential errors `E`, one vector per group.

    `effective_widths` sets the temperature: the mean number of widths per group that have weight in the prior (`exp` of
    the entropy). 1 is the certified optimum itself, whose samples are almost all the same. Unless `tightened`, the
    expected cost is compared with the budget itself (Eq. 14), however few samples satisfy it.

    Raises:
        BudgetError: the narrowest network of the space costs more than the budget.
        SearchError: `E` does not fit the space, or `effective_widths` is below 1.
    """
    if not effective_widths >= 1:
        raise SearchError(f"effective_widths must be at least 1; got {effective_widths!r}")
    errors = checked_errors(E, space)
    limits = space.feasible(budget)
    certified = solve(errors, space, budget, seed=seed)
    if effective_widths == 1:
        rows = certified.P
        temperature = 0.0
    else:
        smoothed = Smoothed(errors, expected_costs(space, limits), np.array(certified.multipliers))
        narrow = one_hot(np.zeros(len(errors), dtype=np.int64), [len(e) for e in errors])
        rows, temperature = smoothed.with_effective_widths(effective_widths, narrow)
        if tightened:
            rows = _with_samples_within(smoothed, rows, temperature, narrow, Problem(space, limits, seed))
    return Prior(space, limits, rows, errors, temperature, certified.lower_bound, certified.gap)


def _with_samples_within(smoothed: Smoothed, rows: Rows, temperature: float, narrow: Rows, problem: Problem) -> Rows:
    """Return rows nearly half of whose samples satisfy the budget: the given ones, or those of a tighter budget.

    Rows whose expected cost uses up the budget may have a long tail of cheap samples, with most samples over budget.
    """
    rng = np.random.default_rng([problem.seed, 6])
    factor = 1.0
    tightest = 1 / max(smoothed.load(narrow), 1e-300)
    for _ in range(_TIGHTENINGS):
        loads = problem.load(draw(rows, _SAMPLES, rng))
        if np.mean(loads <= 1) >= _WITHIN:
            break
        factor = min(factor * float(np.median(loads)), tightest)
        rows = smoothed.tighten(factor).rows_at(temperature, narrow)
    return rows


def learn_prior(
    space: WidthSpace,
    steps: npt.ArrayLike,
    widths: npt.ArrayLike,
    losses: npt.ArrayLike,
    budget: Budget,
    *,
    keep: int | None = None,
    since: float = DEFAULT_SINCE,
    rule: Rule = DEFAULT_RULE,
    window: int = 200,
    effective_widths: float = DEFAULT_EFFECTIVE_WIDTHS,
    tightened: bool = True,
    seed: int = 0,
) -> Prior:
    """Fit the prior to `steps` `(records,)`, `widths` `(records, groups)` and mean `losses` `(records,)` of a training.

    Keeps the `keep` best records after the share `since` of the training by `rule` (see `select_records`), computes
    their potential errors (Eq. 12), solves for the rows under `budget` (Eq. 13-14), and smooths them to
    `effective_widths` per group. The default keeps every record of the second half; the paper's is `keep=100, since=0`
    (see `records`). `tightened` is as in `prior_of_errors`.

    Raises:
        BudgetError: the narrowest network of the space costs more than the budget.
        SearchError: the records are empty, misshapen or not finite, or a setting is out of range.
    """
    chosen, comparable = select_records(steps, widths, losses, keep=keep, since=since, rule=rule, window=window)
    errors = potential_errors(space, chosen, comparable)
    return prior_of_errors(errors, space, budget, effective_widths=effective_widths, tightened=tightened, seed=seed)
