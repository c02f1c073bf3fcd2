"""How good and how fast is the prior's QCQP solution, and how warm should the distribution be that is sampled?

`qcqp`: networks of the paper, budgets 0.1 to 0.9, ten draws of potential errors each; "uniform" errors are independent
uniform numbers, "falling" ones fall with the width, as real losses do, with noise. Beside the certified solution: the
descent of the authors' released code, written afresh from its description (softmax rows, a penalty on the cost above
the budget, 2,000 steps of SGD), SLSQP, and the best of 2,000 uniform draws under the budget. Every gap is to our lower
bound, as a share of the attainable range; `excess` is how far the cost is over the budget.

`temperature`: populations of 40 and searches on Channel-Bench-Macro, by effective widths per group and records kept.

Finished cells are rows of the CSVs and are never computed again.

    python studies/prior.py qcqp|temperature [--quick]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import typer
from channel_bench_macro import BUDGETS, DATA, Table, run, simulated_records
from provenance import append_row, finished, provenance
from scipy.optimize import minimize
from torchvision_here import let_torchvision_import

from bcnet.models import create
from bcnet.searchers import Evolution, Problem, learn_prior, solve
from bcnet.searchers.multilinear import ExpectedCost, expected_costs
from bcnet.space import Budget, WidthSpace

RESULTS = Path(__file__).resolve().parent.parent / "results"
NETWORKS = ("vgg19", "mobilenetv2", "torchvision:resnet50", "torchvision:efficientnet_b0")
RATIOS = tuple(round(0.1 * k, 1) for k in range(1, 10))
Errors = list[np.ndarray]
app = typer.Typer(add_completion=False)


def potential_errors(space: WidthSpace, kind: str, seed: int) -> Errors:
    rng = np.random.default_rng(seed)
    errors = [rng.random(len(group.choices)) for group in space.groups]
    if kind == "falling":
        errors = [np.sort(e)[::-1] * (0.3 + rng.random()) + 0.1 * rng.random(len(e)) for e in errors]
    return errors


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
    problem, rng = Problem.of(space, budget), np.random.default_rng(seed)
    indices = problem.uniform(2000, rng)
    indices = indices[problem.feasible(indices)]
    if len(indices) == 0:
        indices = problem.near_budget(2000, rng)
    values = sum(e[indices[:, g]] for g, e in enumerate(errors))
    best = indices[int(np.argmin(values))]
    return [np.eye(len(e))[i] for e, i in zip(errors, best, strict=True)]


def qcqp_cells(quick: bool) -> Iterator[tuple[str, str, str, float, int]]:
    draws = 1 if quick else 10
    for network in NETWORKS[: 1 if quick else None]:
        for kind in ("uniform", "falling"):
            for ratio in RATIOS:
                yield network, kind, "certified", ratio, draws
        for method in ("descent", "slsqp", "uniform draws"):
            for ratio in (0.2, 0.5):
                if method != "slsqp" or network == "vgg19":  # its time grows with the cube of the 320 to 800 variables
                    yield network, "falling", method, ratio, 1


def measure(space: WidthSpace, kind: str, method: str, ratio: float, seed: int) -> tuple[float, float, float]:
    """Gap, relative excess of the cost, and seconds."""
    errors, budget = potential_errors(space, kind, seed), Budget(macs=ratio)
    certified = solve(errors, space, budget)
    (cost,) = expected_costs(space, space.feasible(budget))
    start = time.perf_counter()
    if method == "certified":
        return certified.gap, max(0.0, cost(certified.P) - 1), certified.seconds
    if method == "descent":
        rows = descent(errors, cost, seed)
    elif method == "slsqp":
        rows = slsqp(errors, cost)
    else:
        rows = uniform_draws(errors, space, budget, seed)
    seconds = time.perf_counter() - start
    objective = sum(float(e @ p) for e, p in zip(errors, rows, strict=True))
    span = sum(float(np.ptp(e)) for e in errors)
    return (objective - certified.lower_bound) / span, max(0.0, cost(rows) - 1), seconds


@app.command()
def qcqp(quick: bool = False) -> None:
    """Gaps and times of the certified solution and of what others do."""
    out = RESULTS / ("quick_prior_qcqp.csv" if quick else "prior_qcqp.csv")
    spaces: dict[str, WidthSpace] = {}
    let_torchvision_import()
    for network, kind, method, ratio, draws in qcqp_cells(quick):
        key = {"network": network, "errors": kind, "method": method, "budget": str(ratio), "draws": str(draws)}
        if finished(out, key):
            continue
        if network not in spaces:
            spec = create(network)
            spaces[network] = WidthSpace.trace(spec.build(), torch.zeros(2, *spec.input_size))
        trials = np.array([measure(spaces[network], kind, method, ratio, seed) for seed in range(draws)])
        figures = {
            "groups": len(spaces[network].groups),
            "gap_median": f"{np.median(trials[:, 0]):.2e}",
            "gap_max": f"{trials[:, 0].max():.2e}",
            "excess_max": f"{trials[:, 1].max():.1e}",
            "seconds_median": f"{np.median(trials[:, 2]):.3f}",
            "seconds_max": f"{trials[:, 2].max():.3f}",
        }
        append_row(out, {**key, **figures, **provenance()})
        print(*key.values(), *figures.values(), file=sys.stderr, flush=True)


@app.command()
def temperature(quick: bool = False, seeds: int = 20) -> None:
    """Populations and searches by effective widths per group."""
    if not DATA.is_file():
        raise SystemExit(f"the table {DATA} is not there: get Channel-Bench-Macro's mobilenet.csv")
    out = RESULTS / ("quick_prior_temperature.csv" if quick else "prior_temperature.csv")
    table, seeds = Table.read(DATA), 2 if quick else seeds
    for keep in (100, 2000):
        for spread in (1.5, 2.0, 2.5, 3.0):
            for ratio in BUDGETS:
                key = {"keep": str(keep), "effective_widths": str(spread), "budget": str(ratio), "seeds": str(seeds)}
                if not finished(out, key):
                    append_row(out, {**key, **_temperature_cell(table, keep, spread, ratio, seeds), **provenance()})


def _temperature_cell(table: Table, keep: int, spread: float, ratio: float, seeds: int) -> dict[str, str]:
    budget, samples, reached = Budget(macs=ratio), [], []
    for seed in range(seeds):
        records = simulated_records(table, seed)
        prior = learn_prior(table.space, *records, budget, keep=keep, effective_widths=spread)
        samples.append(prior.sample(40, budget, np.random.default_rng(seed)))
        trial = run(table, lambda *_, p=prior: Evolution(prior=p), "exact", ratio, seed)
        reached.append(np.inf if trial.reached is None else trial.reached)
    return {
        "within_budget_min": f"{min(s.within_budget for s in samples):.2f}",
        "within_budget_mean": f"{np.mean([s.within_budget for s in samples]):.2f}",
        "duplicates_mean": f"{np.mean([s.duplicates for s in samples]):.3f}",
        "topped_up": str(sum(s.topped_up for s in samples)),
        "evaluations_median": f"{np.median(reached):.0f}",
    }


if __name__ == "__main__":
    app()
