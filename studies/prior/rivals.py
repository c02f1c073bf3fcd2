"""Other ways to the prior's rows, to hold the certified solution against.

Potential errors `E` and rows are lists of one vector per group, shape `(choices,)`.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from bcnet.prior import ExpectedCost
from bcnet.space import Budget, Problem, WidthSpace

Errors = list[np.ndarray]


def descent(errors: Errors, cost: ExpectedCost, seed: int, steps: int = 2000) -> Errors:
    """SGD with momentum on softmax rows; the penalty is the relative excess of the cost, as strong as the range."""
    rng = np.random.default_rng(seed)
    logits = [0.01 * rng.normal(size=len(e)) for e in errors]
    speeds = [np.zeros(len(e)) for e in errors]
    span = sum(np.ptp(e) for e in errors)
    rows = [_softmax(x) for x in logits]
    for _ in range(steps):
        over = cost(rows) > 1
        for g, error in enumerate(errors):
            slope = error + (span * cost.gradient(rows, g) if over else 0.0)
            gradient = rows[g] * (slope - slope @ rows[g])
            speeds[g] = 0.9 * speeds[g] - 0.1 * gradient
            logits[g] = logits[g] + speeds[g]
        rows = [_softmax(x) for x in logits]
    return rows


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def slsqp(errors: Errors, cost: ExpectedCost) -> Errors:
    """SciPy's SLSQP on the rows themselves, from uniform rows."""
    ends = np.cumsum([len(e) for e in errors])[:-1]
    start = np.concatenate([np.full(len(e), 1 / len(e)) for e in errors])
    owner = np.repeat(np.arange(len(errors)), [len(e) for e in errors])
    sums = (np.arange(len(errors))[:, None] == owner).astype(float)

    def cost_gradient(x: np.ndarray) -> np.ndarray:
        rows = np.split(x, ends)
        return -np.concatenate([cost.gradient(rows, g) for g in range(len(rows))])

    constraints = [
        {"type": "eq", "fun": lambda x: sums @ x - 1, "jac": lambda _: sums},
        {"type": "ineq", "fun": lambda x: 1 - cost(np.split(x, ends)), "jac": cost_gradient},
    ]
    flat = np.concatenate(errors)
    found = minimize(
        lambda x: flat @ x,
        start,
        jac=lambda _: flat,
        bounds=[(0, 1)] * len(flat),
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 50},
    )
    rows = [np.maximum(row, 0) for row in np.split(found.x, ends)]
    return [row / row.sum() for row in rows]


def uniform_draws(errors: Errors, space: WidthSpace, budget: Budget, seed: int) -> Errors:
    """The best of 2,000 uniform draws under the budget (drawn near it where fewer than that hold it)."""
    problem = Problem.of(space, budget)
    rng = np.random.default_rng(seed)
    indices = problem.draw_uniform(2000, rng)
    indices = indices[problem.feasible(indices)]
    if len(indices) == 0:
        indices = problem.near_budget(2000, rng)
    values = sum(e[indices[:, g]] for g, e in enumerate(errors))
    best = indices[int(np.argmin(values))]
    return [np.eye(len(e))[i] for e, i in zip(errors, best, strict=True)]
