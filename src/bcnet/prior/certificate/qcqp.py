"""The prior's QCQP with a certificate (Eq. 12-14; spec, section 4).

Notation: `E[g]` are the potential errors of the choices of group `g`, `P[g]` a distribution over them, `f_k` the
expected cost over its limit, and `H` the range `sum_g max E[g] - min E[g]`.

    minimise  sum_g P[g] . E[g]   subject to   P[g] a distribution,  f_k(P) <= 1

Lower bound: for multipliers `lam >= 0` the Lagrangian is linear in every single row, so its minimum over `P` is
attained with every row on one choice. This is a discrete problem that `elimination` solves on the coupling graph. The
largest such minimum is a lower bound of the optimum. If the graph is too dense for exact minima, they are bounded from
below instead.

Upper bound: with all rows fixed except those of an independent set of the graph, the problem is a linear programme with
one coupling row per limit. Solving it for one set after the other never increases the objective and stays feasible. It
starts from the candidates that the lower bound mixes, then from those of slightly changed errors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnet.errors import SearchError
from bcnet.prior.certificate.lagrangian import Lagrangian
from bcnet.prior.certificate.recovery import Recovery
from bcnet.prior.expected_cost import ExpectedCost, Rows, expected_costs
from bcnet.space import Budget, WidthSpace
from bcnet.space.problem import FloatArray

_DUAL_TOLERANCE = 1e-7  # of the range
_CONSTRAINT_TOLERANCE = 1e-6


@dataclass(frozen=True)
class QCQPSolution:
    """Rows `P` with a certificate of their quality.

    `objective` is `sum P . E`. `lower_bound` is at most the objective of any feasible rows. `gap` is their difference
    as a share of the attainable range of the objective. `macs` is the expected cost of `P` (likewise `params`, if
    limited). `multipliers` are per limit, in units of `E` per budget.
    """

    P: Rows
    objective: float
    lower_bound: float
    gap: float
    macs: float
    params: float
    multipliers: tuple[float, ...]
    seconds: float


def solve(
    E: Sequence[FloatArray],
    space: WidthSpace,
    budget: Budget,
    *,
    tolerance: float = 3e-4,
    seed: int = 0,
    max_cells: int = 200_000,
) -> QCQPSolution:
    """Minimise the expected potential error under the budget, with a certificate.

    `E` has one vector per group, shape `(choices,)`. The search for better rows ends at a gap of `tolerance`, or after
    a bounded number of starts, which `seed` chooses. `max_cells` bounds the tables of the lower bound: a smaller value
    makes the bound looser but never wrong.

    Raises:
        BudgetError: the narrowest network of the space costs more than the budget.
        SearchError: `E` does not fit the space, or is not finite.
    """
    start = time.perf_counter()
    limits = space.feasible(budget)
    errors = checked_errors(E, space)
    costs = expected_costs(space, limits)
    span = max(sum(float(np.ptp(e)) for e in errors), 1e-300)
    lagrangian = Lagrangian(errors, costs, max_cells)
    dual = lagrangian.maximise(_DUAL_TOLERANCE * span)
    recovery = Recovery(errors, costs, target=dual.bound + tolerance * span)
    rows = recovery.improve_best(recovery.improve_narrowest(), lagrangian.mixed_candidates(dual))
    rows = recovery.improve_best(rows, lagrangian.tilted_candidates(dual, seed))
    held = all(cost(rows) <= 1 + _CONSTRAINT_TOLERANCE for cost in costs)
    assert held, "the recovery left the constraint"
    objective = sum(float(e @ p) for e, p in zip(errors, rows, strict=True))
    return QCQPSolution(
        P=rows,
        objective=float(objective),
        lower_bound=float(min(dual.bound, objective)),
        gap=float(max(0.0, objective - dual.bound) / span),
        macs=_expected_cost(space, "macs", rows),
        params=_expected_cost(space, "params", rows),
        multipliers=tuple(dual.multipliers.tolist()),
        seconds=time.perf_counter() - start,
    )


def _expected_cost(space: WidthSpace, name: str, rows: Rows) -> float:
    polynomial = space.macs_terms if name == "macs" else space.params_terms
    return ExpectedCost.of(polynomial, space, 1)(rows)


def checked_errors(E: Sequence[FloatArray], space: WidthSpace) -> Rows:
    """Return `E` as float vectors, one per group.

    Raises:
        SearchError: wrong shapes, or values that are not finite.
    """
    errors = tuple(np.asarray(e, dtype=np.float64) for e in E)
    wanted = [(len(group.choices),) for group in space.groups]
    if [e.shape for e in errors] != wanted:
        raise SearchError(
            f"potential errors must be one vector per group, of its number of choices, {wanted}; "
            f"got {[e.shape for e in errors]}"
        )
    if not all(np.isfinite(e).all() for e in errors):
        raise SearchError("potential errors must be finite numbers; got NaN or infinity: check the recorded losses")
    return errors
