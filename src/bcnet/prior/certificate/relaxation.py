"""A lower bound for dense coupling graphs: the McCormick relaxation of the QCQP, a linear programme for HiGHS.

Notation as in `qcqp`. With `m_g = P[g] . c_g` the mean width, a product of means `m_g * m_h` of groups in `[a_g, b_g]`
and `[a_h, b_h]` is at least

    max(a_h * m_g + a_g * m_h - a_g * a_h,   b_h * m_g + b_g * m_h - b_g * b_h)      (McCormick, 1976)

and coefficients are never negative. A factor of more groups has its further widths at their smallest. Replacing
costs by these lower estimates can only admit more rows, so the optimum bounds the QCQP's from below. The bound reported
is the Lagrangian one at the solver's multipliers, exact to rounding whatever the solver's tolerance.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcnet.prior.expected_cost import Rows
from bcnet.space import Budget, Polynomial, WidthSpace
from bcnet.space.problem import FloatArray, IntArray

Moment = tuple[int, int]  # (group, power)


@dataclass(frozen=True)
class _Products:
    """One cost over its limit: a part linear in the rows, and products of two moments with their coefficients.

    `linear` has shape `(choices of all groups,)`, the others one entry per product.
    """

    constant: float
    linear: FloatArray
    coefficients: FloatArray
    left: IntArray  # index of a moment
    right: IntArray


@dataclass(frozen=True)
class _Relaxation:
    objective: FloatArray  # (choices of all groups,)
    owner: IntArray  # (choices of all groups,): the group of each
    moments: FloatArray  # (moments, choices of all groups)
    low: FloatArray  # (moments,)
    high: FloatArray
    costs: tuple[_Products, ...]


def relaxed_bound(errors: Rows, space: WidthSpace, limits: Budget) -> float:
    """A lower bound on the expected potential error under the absolute budget; minus infinity if the solver fails."""
    relaxation = _relaxation(errors, space, limits)
    if not relaxation.costs:
        return -np.inf
    solved = _solve(relaxation)
    if solved is None:
        return -np.inf
    return _lagrangian_bound(relaxation, *solved)


def _relaxation(errors: Rows, space: WidthSpace, limits: Budget) -> _Relaxation:
    choices = [np.array(group.choices, dtype=np.float64) for group in space.groups]
    owner = np.repeat(np.arange(len(choices)), [len(c) for c in choices])
    found: dict[Moment, int] = {}
    pairs = [(part, limit) for measure, limit in limits.limits.items() for part in measure.constraints(space)]
    # A limit that is no polynomial is left out: fewer constraints only lower the bound.
    costs = tuple(_products(part, limit, choices, found) for part, limit in pairs if isinstance(part, Polynomial))
    moments = np.zeros((len(found), len(owner)))
    for (group, power), row in found.items():
        moments[row, owner == group] = choices[group] ** power
    low = np.array([choices[g][0] ** p for g, p in found], dtype=np.float64)
    high = np.array([choices[g][-1] ** p for g, p in found], dtype=np.float64)
    return _Relaxation(np.concatenate(errors), owner, moments, low, high, costs)


def _products(polynomial: Polynomial, limit: float, choices: list[FloatArray], found: dict[Moment, int]) -> _Products:
    constant = 0.0
    linear = [np.zeros(len(c)) for c in choices]
    products: dict[tuple[int, int], float] = defaultdict(float)
    for groups, coefficient in polynomial.terms.items():
        assert coefficient >= 0, "costs are sums of sizes"
        factors = [(g, groups.count(g)) for g in sorted(set(groups))]
        value = coefficient / limit * float(np.prod([choices[g][0] ** p for g, p in factors[2:]]))
        if not factors:
            constant += value
        elif len(factors) == 1:
            group, power = factors[0]
            linear[group] += value * choices[group] ** power
        else:
            left, right = (found.setdefault(moment, len(found)) for moment in factors[:2])
            products[left, right] += value
    index = np.array(list(products), dtype=np.int64).reshape(-1, 2)
    coefficients = np.array(list(products.values()), dtype=np.float64)
    return _Products(constant, np.concatenate(linear), coefficients, index[:, 0], index[:, 1])


def _solve(r: _Relaxation) -> tuple[FloatArray, list[FloatArray]] | None:
    """Multipliers of the limits `(limits,)`, and per limit the share of the lower McCormick estimate `(products,)`.

    The variables are the rows `(choices of all groups,)` and then, for each limit, an estimate of each product,
    relative to the widest.
    """
    from scipy import sparse  # takes a while to import, and only dense graphs come here
    from scipy.optimize import linprog

    choices = len(r.owner)
    count = int(r.owner.max()) + 1
    means = sparse.csr_matrix(r.moments / r.high[:, None])  # (moments, choices), relative to the widest
    a = r.low / r.high
    products = [len(cost.left) for cost in r.costs]
    total = choices + sum(products)
    blocks: list[Any] = []  # inequalities A x <= b, those of one limit after the other
    bounds: list[FloatArray] = []
    places: list[int] = []  # where the lower estimates of each limit begin
    start = choices
    for cost, size in zip(r.costs, products, strict=True):
        i = cost.left
        j = cost.right
        estimates = sparse.eye(size, total, k=start, format="csr")
        of_rows = sparse.hstack([means, sparse.csr_matrix((len(a), total - choices))], format="csr")
        lower = sparse.diags(a[j]) @ of_rows[i] + sparse.diags(a[i]) @ of_rows[j] - estimates
        upper = of_rows[i] + of_rows[j] - estimates
        spent = np.zeros(total)
        spent[:choices] = cost.linear
        spent[start : start + size] = cost.coefficients * r.high[i] * r.high[j]
        places.append(sum(block.shape[0] for block in blocks))
        blocks += [lower, upper, sparse.csr_matrix(spent)]
        bounds += [a[i] * a[j], np.ones(size), np.array([1 - cost.constant])]
        start += size
    one_each = sparse.csr_matrix((np.ones(choices), (r.owner, np.arange(choices))), shape=(count, total))
    solution = linprog(
        np.concatenate([r.objective, np.zeros(total - choices)]),
        A_ub=sparse.vstack(blocks, format="csr"),
        b_ub=np.concatenate(bounds),
        A_eq=one_each,
        b_eq=np.ones(count),
        bounds=[(0, None)] * choices + [(None, None)] * (total - choices),
        method="highs",
    )
    if solution.ineqlin is None or solution.ineqlin.marginals is None:
        return None
    duals = np.maximum(-solution.ineqlin.marginals, 0.0)
    multipliers = np.array([duals[place + 2 * size] for place, size in zip(places, products, strict=True)])
    shares = []
    for cost, multiplier, place, size in zip(r.costs, multipliers, places, products, strict=True):
        whole = multiplier * cost.coefficients * r.high[cost.left] * r.high[cost.right]
        shares.append(np.clip(duals[place : place + size] / np.maximum(whole, 1e-300), 0.0, 1.0))
    return multipliers, shares


def _lagrangian_bound(r: _Relaxation, multipliers: FloatArray, shares: list[FloatArray]) -> float:
    """The Lagrangian's minimum over the rows, which separates into one minimum per group: a bound for any arguments."""
    reduced = r.objective.copy()
    bound = 0.0
    for cost, multiplier, share in zip(r.costs, multipliers, shares, strict=True):
        i = cost.left
        j = cost.right
        at_i = share * r.low[j] + (1 - share) * r.high[j]  # slope in the left moment
        at_j = share * r.low[i] + (1 - share) * r.high[i]
        offset = share * r.low[i] * r.low[j] + (1 - share) * r.high[i] * r.high[j]
        slopes = np.zeros(len(r.low))
        np.add.at(slopes, i, cost.coefficients * at_i)
        np.add.at(slopes, j, cost.coefficients * at_j)
        reduced += multiplier * (cost.linear + slopes @ r.moments)
        bound += multiplier * float(cost.constant - 1 - cost.coefficients @ offset)
    return bound + float(sum(reduced[r.owner == g].min() for g in range(int(r.owner.max()) + 1)))
