"""The prior's QCQP with a certificate (Eq. 12-14; spec, section 4).

Notation: `E[g]` the potential errors of the choices of group `g`, `P[g]` a distribution over them, `f_k` the expected
cost over its limit (`multilinear`), `H` the range `sum_g max E[g] - min E[g]`.

    minimise  sum_g P[g] . E[g]   subject to   P[g] a distribution,  f_k(P) <= 1

Lower bound: for multipliers `lam >= 0` the Lagrangian is linear in every single row, so its minimum over `P` is
attained where every row is on one choice: a discrete problem that `elimination` solves on the coupling graph. The
largest such minimum bounds the optimum from below. Where the graph is too dense the minimum itself is bounded
(`relaxation` adds a second bound there).

Upper bound: fixing all rows but those of an independent set of the graph leaves a linear programme with one coupling
row per limit. Solving it for one set after the other never raises the objective and never leaves the constraint; it
starts from the candidates met on the way to the lower bound and from those between them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bcnet.errors import SearchError
from bcnet.searchers.dual import Cut, DualMaximum, maximise_dual
from bcnet.searchers.elimination import Elimination, Scope
from bcnet.searchers.multilinear import ExpectedCost, Rows, expected_costs
from bcnet.searchers.problem import FloatArray, IntArray
from bcnet.searchers.recovery import Recovery
from bcnet.space import Budget, WidthSpace

_DUAL_TOLERANCE = 1e-7  # of the range
_CONSTRAINT_TOLERANCE = 1e-6
_TILTS = (0.05, 3.0, 24)  # smallest, largest, how many; in units of the mean range of a group's errors


@dataclass(frozen=True)
class QCQPSolution:
    """Rows `P` with a proof of how good they are.

    `objective` is `sum P . E`, `lower_bound` no more than any feasible rows reach, `gap` their difference as a share of
    the attainable range of the objective. `macs` is the expected cost of `P` (`params` likewise, where limited).
    `multipliers` are per limit, in units of `E` per budget.
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
    tolerance: float = 5e-4,
    seed: int = 0,
    max_cells: int = 200_000,
) -> QCQPSolution:
    """Minimise the expected potential error under the budget, with a certificate.

    `E` has one vector per group, shape `(choices,)`. The search for better rows ends at a gap of `tolerance`, or when
    it has no more to try. `max_cells` bounds the tables of the lower bound: beyond it the bound is looser, never wrong.

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
    lower = dual.bound
    if not lagrangian.exact:
        from bcnet.searchers.relaxation import relaxed_bound

        lower = max(lower, relaxed_bound(errors, space, limits))
    recovery = Recovery(errors, costs, target=lower + tolerance * span)
    rows = recovery.best_from(lagrangian.starts(dual, seed), lagrangian.held.point)
    held = all(cost(rows) <= 1 + _CONSTRAINT_TOLERANCE for cost in costs)
    assert held, "the recovery left the constraint"
    objective = sum(float(e @ p) for e, p in zip(errors, rows, strict=True))
    return QCQPSolution(
        P=rows,
        objective=float(objective),
        lower_bound=float(min(lower, objective)),
        gap=float(max(0.0, objective - lower) / span),
        macs=_expected(space, "macs", rows),
        params=_expected(space, "params", rows),
        multipliers=tuple(dual.multipliers.tolist()),
        seconds=time.perf_counter() - start,
    )


def _expected(space: WidthSpace, name: str, rows: Rows) -> float:
    polynomial = space.macs_terms if name == "macs" else space.params_terms
    return ExpectedCost.of(polynomial, space, 1)(rows)


def checked_errors(E: Sequence[FloatArray], space: WidthSpace) -> Rows:
    """`E` as float vectors, one per group.

    Raises:
        SearchError: wrong shapes, or values that are not finite.
    """
    errors = tuple(np.asarray(e, dtype=np.float64) for e in E)
    wanted = [(len(group.choices),) for group in space.groups]
    if [e.shape for e in errors] != wanted:
        raise SearchError(
            f"potential errors are one vector per group, of its number of choices, {wanted}; "
            f"got {[e.shape for e in errors]}"
        )
    if not all(np.isfinite(e).all() for e in errors):
        raise SearchError("potential errors are finite numbers; got NaN or infinity: check the recorded losses")
    return errors


class Lagrangian:
    """`min over one choice per group of sum E + lam . (f - 1)`, for any multipliers."""

    def __init__(self, errors: Rows, costs: tuple[ExpectedCost, ...], max_cells: int) -> None:
        self._errors, self._costs = errors, costs
        self._sizes = [len(e) for e in errors]
        self._scopes: list[Scope] = [(g,) for g in range(len(errors))]
        self._scopes += sorted({f.groups for cost in costs for f in cost.factors})
        self._tables = [self._aligned(cost) for cost in costs]
        self._plan = Elimination(self._scopes, self._sizes, max_cells)
        self.held = self._cut(np.zeros(len(errors), dtype=np.int64))

    @property
    def exact(self) -> bool:
        """Whether minima are exact rather than bounded from below."""
        return self._plan.exact

    def _aligned(self, cost: ExpectedCost) -> list[FloatArray]:
        own = {f.groups: f.table for f in cost.factors}
        zeros = (np.zeros([self._sizes[g] for g in scope]) for scope in self._scopes[len(self._errors) :])
        pairs = zip(self._scopes[len(self._errors) :], zeros, strict=True)
        return [*cost.unary, *(own.get(scope, zero) for scope, zero in pairs)]

    def _cut(self, indices: IntArray) -> Cut:
        objective = sum(float(e[i]) for e, i in zip(self._errors, indices, strict=True))
        return Cut(objective, np.array([cost.of_indices(indices) - 1 for cost in self._costs]), indices)

    def value(self, multipliers: FloatArray, errors: Rows | None = None) -> tuple[float, Cut]:
        """The minimum (or its bound) at `multipliers`, and the cut there, with an assignment as its point."""
        shown = self._errors if errors is None else errors
        tables = []
        for number in range(len(self._scopes)):
            table = sum(m * t[number] for m, t in zip(multipliers, self._tables, strict=True))
            tables.append(np.asarray(shown[number] + table if number < len(shown) else table))
        minimum = self._plan.minimise(tables)
        value = minimum.bound + float(sum(m * (c.constant - 1) for m, c in zip(multipliers, self._costs, strict=True)))
        if self.exact:
            return value, self._cut(minimum.assignment)
        slack = [
            c.constant - 1 + sum(float(t[cell]) for t, cell in zip(tables_of, minimum.cells, strict=True))
            for c, tables_of in zip(self._costs, self._tables, strict=True)
        ]
        objective = sum(float(e[cell]) for e, cell in zip(shown, minimum.cells, strict=False))
        return value, Cut(objective, np.array(slack), minimum.assignment)

    def maximise(self, tolerance: float) -> DualMaximum:
        """The largest lower bound over all multipliers."""
        return maximise_dual(self.value, self.held, tolerance)

    def starts(self, dual: DualMaximum, seed: int) -> Iterator[IntArray]:
        """Candidates `(groups,)` of small Lagrangian: those at the maximum, then those of slightly changed errors.

        Errors are tilted per group, towards wide or narrow, by normal draws of growing size, which moves whole sets of
        rows from one optimal candidate to the other.
        """
        rng = np.random.default_rng(seed)
        for number in np.argsort(-dual.weights, kind="stable")[:4]:
            yield np.asarray(dual.cuts[number].point)
        spread = np.mean([np.ptp(e) for e in self._errors])
        for size in spread * np.geomspace(*_TILTS):
            tilted = tuple(e + rng.normal(0, size) * np.linspace(0, 1, len(e)) for e in self._errors)
            yield np.asarray(self.value(dual.multipliers, tilted)[1].point)
