"""How good and how fast is the prior's QCQP solution, and what populations does the prior give?

`qcqp`: networks of the paper, budgets 0.1 to 0.9. The potential errors are ten draws each of independent uniform
numbers ("uniform") and of numbers that fall with the width, as real losses do, with noise ("falling"), and those of one
real supernet training of each network ("trained", in `results/prior_errors.csv`; see `studies.shared.short_training`).
Beside the certified solution: the descent of the authors' released code, written afresh from its description (softmax
rows, a penalty on the cost above the budget, 2,000 steps of SGD), SLSQP, and the best of 2,000 uniform draws under the
budget. Every gap is to our lower bound, as a share of the attainable range; `excess` is how far the cost is over the
budget.

`populations`: initial populations of 40 from the smoothed prior of the same errors.

`temperature`: populations and searches on Channel-Bench-Macro, by effective widths per group and records kept.

Finished cells are rows of the CSVs and are never computed again.

    python -m studies.prior qcqp|populations|temperature [--quick]
"""

from __future__ import annotations

import csv
import functools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from bcnet.models import create
from bcnet.prior import expected_costs, learn_prior, potential_errors, prior_of_errors, select_records, solve
from bcnet.searchers import Evolution
from bcnet.space import Budget, WidthSpace
from studies.prior.rivals import Errors, descent, slsqp, uniform_draws
from studies.ranking.channel_bench_macro import BUDGETS, Table, run, simulated_records
from studies.ranking.channel_bench_macro import DATA as TABLE
from studies.shared.provenance import ROOT, append_row, finished, provenance
from studies.shared.short_training import CIFAR10, ShortTraining
from studies.shared.torchvision_here import let_torchvision_import

RESULTS = ROOT / "results"
RUNS = ROOT / "runs" / "prior"
TRAININGS = {
    "vgg19": ShortTraining("vgg19", 16, steps=600, lr=0.02),
    "mobilenetv2": ShortTraining("mobilenetv2", 16, steps=600, lr=0.02),
    "torchvision:resnet50": ShortTraining("torchvision:resnet50", 32, steps=250, lr=0.05),
    "torchvision:efficientnet_b0": ShortTraining("torchvision:efficientnet_b0", 32, steps=250, lr=0.05),
}
NETWORKS = tuple(TRAININGS)
DENSE = "torchvision:densenet121"  # 120 groups, coupled too densely for exact minima
RATIOS = tuple(round(0.1 * k, 1) for k in range(1, 10))
POPULATION = 40
app = typer.Typer(add_completion=False)
Quick = Annotated[bool, typer.Option(help="One draw of one network, to see that everything runs.")]
Data = Annotated[Path, typer.Option(help="CIFAR-10 as Parquet files, for the trainings that are not finished.")]


@functools.cache
def space_of(network: str) -> WidthSpace:
    """The width space of the network at its usual input size."""
    let_torchvision_import()
    spec = create(network)
    return WidthSpace.trace(spec.build(), torch.zeros(2, *spec.input_size), multiple_of=1)


def errors_of(network: str, kind: str, seed: int, data: Path) -> Errors:
    """Potential errors of one kind, one vector per group of the network's space."""
    space = space_of(network)
    rng = np.random.default_rng(seed)
    if kind == "trained":
        return trained_errors(network, data)
    errors = [rng.random(len(group.choices)) for group in space.groups]
    if kind == "falling":
        errors = [np.sort(e)[::-1] * (0.3 + rng.random()) + 0.1 * rng.random(len(e)) for e in errors]
    return errors


def trained_errors(network: str, data: Path) -> Errors:
    """The potential errors of a real training, which is made where the CSV does not yet have them."""
    file = RESULTS / "prior_errors.csv"
    space = space_of(network)
    training = TRAININGS[network]
    key = {"network": network, "training": str(training)}
    if not finished(file, key):
        records = training.records(RUNS / network.replace(":", "-"), data)
        chosen, losses = select_records(records.steps, records.widths, records.losses)
        for group, vector in zip(space.groups, potential_errors(space, chosen, losses), strict=True):
            values = " ".join(f"{error:.6f}" for error in vector)
            append_row(file, {**key, "group": group.name, "errors": values, **provenance()})
    with file.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if key.items() <= row.items()]
    return [np.array(row["errors"].split(), dtype=np.float64) for row in rows]


def draws_of(quick: bool, most: int) -> dict[str, int]:
    """How many draws of each kind of errors."""
    return {"uniform": 1, "falling": 1} if quick else {"uniform": most, "falling": most, "trained": 1}


def qcqp_cells(quick: bool) -> Iterator[tuple[str, str, str, float, int]]:
    for network in NETWORKS[: 1 if quick else None]:
        for kind, draws in draws_of(quick, 10).items():
            for ratio in RATIOS:
                yield network, kind, "certified", ratio, draws
        for method in ("descent", "slsqp", "uniform draws"):
            for ratio in (0.2, 0.5):
                if method != "slsqp" or network == "vgg19":  # its time grows with the cube of the 320 to 800 variables
                    yield network, "falling", method, ratio, 1
    for ratio in () if quick else (0.2, 0.5, 0.8):
        yield DENSE, "falling", "certified", ratio, 1


def measure(space: WidthSpace, errors: Errors, method: str, ratio: float, seed: int) -> tuple[float, float, float]:
    """Gap, relative excess of the cost, and seconds."""
    budget = Budget(macs=ratio)
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
def qcqp(quick: Quick = False, data: Data = CIFAR10) -> None:
    """Gaps and times of the certified solution and of what others do."""
    out = RESULTS / ("quick_prior_qcqp.csv" if quick else "prior_qcqp.csv")
    for network, kind, method, ratio, draws in qcqp_cells(quick):
        key = {"network": network, "errors": kind, "method": method, "budget": str(ratio), "draws": str(draws)}
        if finished(out, key):
            continue
        space = space_of(network)
        each = [errors_of(network, kind, seed, data) for seed in range(draws)]
        trials = np.array([measure(space, errors, method, ratio, seed) for seed, errors in enumerate(each)])
        figures = {
            "groups": len(space.groups),
            "gap_median": f"{np.median(trials[:, 0]):.2e}",
            "gap_max": f"{trials[:, 0].max():.2e}",
            "excess_max": f"{trials[:, 1].max():.1e}",
            "seconds_median": f"{np.median(trials[:, 2]):.3f}",
            "seconds_max": f"{trials[:, 2].max():.3f}",
        }
        append_row(out, {**key, **figures, **provenance()})
        print(*key.values(), *figures.values(), file=sys.stderr, flush=True)


@app.command()
def populations(quick: Quick = False, data: Data = CIFAR10) -> None:
    """Initial populations: the share of first draws within the budget, the share of duplicates, how many fill up."""
    out = RESULTS / ("quick_prior_populations.csv" if quick else "prior_populations.csv")
    for network in NETWORKS[: 1 if quick else None]:
        for kind, draws in draws_of(quick, 3).items():
            for ratio in RATIOS[::2]:
                key = {"network": network, "errors": kind, "budget": str(ratio), "draws": str(draws)}
                if not finished(out, key):
                    each = [errors_of(network, kind, seed, data) for seed in range(draws)]
                    append_row(out, {**key, **_population_cell(space_of(network), each, ratio), **provenance()})


def _population_cell(space: WidthSpace, each: list[Errors], ratio: float) -> dict[str, str]:
    budget = Budget(macs=ratio)
    samples = []
    seconds = []
    for seed, errors in enumerate(each):
        start = time.perf_counter()
        prior = prior_of_errors(errors, space, budget)
        seconds.append(time.perf_counter() - start)
        samples.append(prior.sample(POPULATION, budget, np.random.default_rng(seed)))
    return {
        "within_budget_min": f"{min(s.within_budget for s in samples):.3f}",
        "within_budget_mean": f"{np.mean([s.within_budget for s in samples]):.3f}",
        "duplicates_max": f"{max(s.duplicates for s in samples):.3f}",
        "topped_up_max": str(max(s.topped_up for s in samples)),
        "filled": f"{sum(len(s.widths) == POPULATION for s in samples)}/{len(samples)}",
        "prior_seconds_median": f"{np.median(seconds):.2f}",
    }


@app.command()
def temperature(quick: Quick = False, seeds: int = 20) -> None:
    """Populations and searches by effective widths per group."""
    if not TABLE.is_file():
        raise SystemExit(f"the table {TABLE} is not there: get Channel-Bench-Macro's mobilenet.csv")
    out = RESULTS / ("quick_prior_temperature.csv" if quick else "prior_temperature.csv")
    table = Table.read(TABLE)
    seeds = 2 if quick else seeds
    for keep in ("100", "default"):
        for spread in (1.5, 2.0, 2.5, 3.0):
            for ratio in BUDGETS:
                key = {"keep": keep, "effective_widths": str(spread), "budget": str(ratio), "seeds": str(seeds)}
                if not finished(out, key):
                    append_row(out, {**key, **_temperature_cell(table, keep, spread, ratio, seeds), **provenance()})


def _temperature_cell(table: Table, keep: str, spread: float, ratio: float, seeds: int) -> dict[str, str]:
    budget = Budget(macs=ratio)
    samples = []
    reached = []
    for seed in range(seeds):
        records = simulated_records(table, seed)
        settings = {"keep": 100, "since": 0.0} if keep == "100" else {}
        prior = learn_prior(table.space, *records, budget, effective_widths=spread, **settings)
        samples.append(prior.sample(40, budget, np.random.default_rng(seed)))
        trial = run(table, lambda *_, p=prior: Evolution(prior=p, macs_from=0.0), "exact", ratio, seed)
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
