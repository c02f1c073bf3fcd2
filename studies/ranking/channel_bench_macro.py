"""Do the searchers find the best widths? On a table of 16,384 trained networks, with no training at all.

Channel-Bench-Macro's MobileNet has 7 groups of 4 widths, every combination trained alone on CIFAR-10 three times. A
cell of the study is one searcher under one budget with one kind of score, over a range of seeds:

- scores "exact": the mean of the three accuracies; a seed ends when it meets one of the best 0.1 % under the budget.
- scores "noisy": the first training run (`acc1`); judged by the mean of the other two. Every seed runs to its limit.

The prior learns from simulated records: per step random widths and their complement, a loss that is linear in accuracy
plus normal noise of each record and of each step, both of one standard deviation of the accuracies, and a decay.

Finished cells are rows of the CSV and are never computed again.

    python -m studies.ranking.channel_bench_macro [--quick] [--table FILE --network NAME]
"""

from __future__ import annotations

import csv
import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from bcnet.models import create
from bcnet.prior import Prior, learn_prior
from bcnet.searchers import (
    Candidate,
    Evolution,
    Greedy,
    PriorOnly,
    Proposals,
    Random,
    Searcher,
    search_widths,
)
from bcnet.space import Budget, Problem, Widths, WidthSpace
from studies.shared.provenance import ROOT, append_row, finished, provenance

DATA = ROOT.parent / "shared" / "data" / "channel_bench_macro" / "mobilenet.csv"
OUT = ROOT / "results" / "channel_bench_macro.csv"
BUDGETS = (0.25, 0.5, 0.75)
BEST_SHARE = 0.001
RECORD_STEPS = 1000
RECORD_DECAY = 300
MOBILENET = "mobilenet"  # the network of the rows that are there


@dataclass(frozen=True)
class UniformRandom(Searcher):
    """Plain uniform draws under the budget, without repetition: the reference that needs no explanation."""

    limit: int = 20_000

    def proposals(self, problem: Problem) -> Proposals:
        rng = np.random.default_rng([problem.seed, 5])
        everything = np.array(np.unravel_index(np.arange(problem.sizes.prod()), problem.sizes)).T
        inside = everything[problem.feasible(everything)]
        yield problem.widths(rng.permutation(inside))


@dataclass(frozen=True)
class Table:
    """Accuracies of all networks of the table, by widths: `(networks, 3)` beside their MACs."""

    space: WidthSpace
    rows: dict[Widths, int]
    macs: np.ndarray
    accuracies: np.ndarray

    @classmethod
    def read(cls, path: Path, network: str = MOBILENET) -> Table:
        """The table of a network; its groups are the digits of `arch`, in their order, from 1 for the narrowest."""
        space = WidthSpace.trace(network_called(network), torch.zeros(2, 3, 32, 32), num_choices=4, multiple_of=1)
        with path.open() as file:
            lines = list(csv.DictReader(file))
        widths = [
            tuple(g.choices[int(digit) - 1] for g, digit in zip(space.groups, line["arch"], strict=True))
            for line in lines
        ]
        costs = space.cost(np.array(widths))
        wrong = (costs.macs != [int(line["macs"]) for line in lines]).sum()
        wrong += (costs.params != [int(line["params"]) for line in lines]).sum()
        if wrong:
            raise SystemExit(f"{wrong} costs of {path} differ from those traced: not the table of {network}")
        accuracies = np.array([[float(line[f"acc{run}"]) for run in (1, 2, 3)] for line in lines])
        return cls(space, {w: i for i, w in enumerate(widths)}, costs.macs, accuracies)

    def score(self, kind: str) -> np.ndarray:
        return self.accuracies.mean(axis=1) if kind == "exact" else self.accuracies[:, 0]

    def judge(self, kind: str) -> np.ndarray:
        return self.accuracies.mean(axis=1) if kind == "exact" else self.accuracies[:, 1:].mean(axis=1)


def network_called(name: str, num_classes: int = 10, in_channels: int = 3) -> torch.nn.Module:
    """The benchmark's network of a short name, mobilenet or resnet, or any of `bcnet.models`."""
    full = f"channel_bench_{name}" if name in ("mobilenet", "resnet") else name
    return create(full, num_classes, in_channels=in_channels).build()


def of_network(path: Path, usual: Path, network: str) -> Path:
    """Where rows go: where they were asked to, and usually for each network beside those of the usual one."""
    asked = network == MOBILENET or path != usual
    return path if asked else path.with_name(f"{path.stem}_{network}{path.suffix}")


def simulated_records(table: Table, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps `(2 * steps,)`, widths `(2 * steps, groups)` and losses, as a supernet's training would record them."""
    rng = np.random.default_rng([seed, 9])
    accuracy = table.score("exact")
    spread = accuracy.std()
    steps = np.repeat(np.arange(RECORD_STEPS), 2)
    generator = torch.Generator().manual_seed(seed)
    drawn = [table.space.sample(generator) for _ in range(RECORD_STEPS)]
    widths = [w for c in drawn for w in (c, table.space.nearest(table.space.complement(c)))]
    errors = np.array([accuracy.max() - accuracy[table.rows[w]] for w in widths]) / spread
    noise = rng.normal(size=len(steps)) + np.repeat(rng.normal(size=RECORD_STEPS), 2)
    return steps, np.array(widths), errors + noise + 3 * np.exp(-steps / RECORD_DECAY)


def prior(table: Table, seed: int, budget: float) -> Prior:
    return learn_prior(table.space, *simulated_records(table, seed), Budget(macs=budget))


def prior_of_the_best(table: Table, seed: int, budget: float) -> Prior:
    """The paper's rule."""
    return learn_prior(table.space, *simulated_records(table, seed), Budget(macs=budget), keep=100, since=0)


Make = Callable[[Table, int, float], Searcher]
SEARCHERS: dict[str, Make] = {
    "random, uniform": lambda table, seed, budget: UniformRandom(),
    "random, near the budget": lambda table, seed, budget: Random(),
    "greedy": lambda table, seed, budget: Greedy(),
    "evolution": lambda table, seed, budget: Evolution(macs_from=0.0),
    "evolution near the budget": lambda table, seed, budget: Evolution(),
    "evolution, prior of the best 100": lambda *cell: Evolution(prior=prior_of_the_best(*cell), macs_from=0.0),
    "evolution, learnt prior": lambda *cell: Evolution(prior=prior(*cell), macs_from=0.0),
    "evolution near the budget, learnt prior": lambda *cell: Evolution(prior=prior(*cell)),
    "prior only": lambda *cell: PriorOnly(prior(*cell)),
}


class Reached(Exception):  # noqa: N818 - a way out of a search, no error
    pass


@dataclass(frozen=True)
class Trial:
    """Evaluations until one of the best was met (None: never), and the judged accuracy of the result."""

    reached: int | None
    judged: float


def run(table: Table, make: Make, kind: str, budget: float, seed: int) -> Trial:
    limit = budget * table.space.reference.macs
    judge = table.judge(kind)
    scores = table.score(kind)
    inside = np.flatnonzero(table.macs <= limit)
    bar = np.sort(judge[inside])[-max(1, int(len(inside) * BEST_SHARE))]
    met: list[int] = []

    def watch(candidate: Candidate, done: int, _: int) -> None:
        if candidate.cost.macs <= limit and judge[table.rows[candidate.widths]] >= bar:
            met.append(done)
            if kind == "exact":
                raise Reached

    def score(widths: Widths) -> float:
        return float(scores[table.rows[widths]])

    searcher = make(table, seed, budget)
    try:
        result = search_widths(table.space, score, Budget(macs=budget), searcher=searcher, seed=seed, callback=watch)
    except Reached:
        return Trial(met[0], float(bar))
    return Trial(met[0] if met else None, float(judge[table.rows[result.best.widths]]))


def cell(table: Table, name: str, kind: str, budget: float, seeds: int) -> dict[str, object]:
    start = time.perf_counter()
    trials = [run(table, SEARCHERS[name], kind, budget, seed) for seed in range(seeds)]
    judge = table.judge(kind)
    best = judge[table.macs <= budget * table.space.reference.macs].max()
    counts = np.array([np.inf if t.reached is None else t.reached for t in trials])
    low, median, high = (_count(np.quantile(counts, q, method="higher")) for q in (0.25, 0.5, 0.75))
    return {
        "searcher": name,
        "scores": kind,
        "budget": budget,
        "seeds": f"0-{seeds - 1}",
        "evaluations_q25": low,
        "evaluations_median": median,
        "evaluations_q75": high,
        "reached_within_2000": f"{int((counts <= 2000).sum())}/{seeds}",
        "regret_mean": f"{float(np.mean([best - t.judged for t in trials])):.3f}",
        "seconds": f"{time.perf_counter() - start:.1f}",
        **provenance(),
    }


def _count(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else "never"


def figure(out: Path) -> None:
    """Medians and quartiles, one panel per budget and kind of score."""
    from matplotlib.figure import Figure

    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in SEARCHERS if any(row["searcher"] == name for row in rows)]
    picture = Figure(figsize=(11, 6.4), layout="constrained")
    axes = picture.subplots(2, len(BUDGETS), sharex=True, sharey=True)
    for kind, line in zip(("exact", "noisy"), axes, strict=True):
        for budget, axis in zip(BUDGETS, line, strict=True):
            for row in rows:
                if (row["scores"], float(row["budget"])) == (kind, budget):
                    _draw(axis, row, names.index(row["searcher"]))
            axis.set(xscale="log", title=f"{budget:.0%} of the MACs, {kind} scores")
            axis.set_yticks(range(len(names)), names)
            axis.grid(axis="x", alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("evaluations to the best 0.1 %")
    picture.savefig(out.with_suffix(".svg"), metadata={"Date": None})


def _draw(axis: Any, row: dict[str, str], height: int) -> None:
    low, median, high = (row[f"evaluations_{q}"] for q in ("q25", "median", "q75"))
    if median != "never":
        right = float(high) if high != "never" else 2000.0
        axis.plot([float(low), right], [height, height], color="tab:blue")
        axis.plot(float(median), height, "o", color="tab:blue")


def main(
    quick: Annotated[bool, typer.Option(help="One seed, noisy under one budget, to see that everything runs.")] = False,
    table: Annotated[Path, typer.Option(help="The table.")] = DATA,
    network: Annotated[str, typer.Option(help="Its network: mobilenet, resnet, or a name of ours.")] = MOBILENET,
    out: Annotated[Path, typer.Option(help="CSV of finished cells; the figure goes beside it.")] = OUT,
    exact_seeds: int = 100,
    noisy_seeds: int = 100,
) -> None:
    """Evaluations that each searcher needs on the table of 16,384 trained networks."""
    if not table.is_file():
        raise SystemExit(f"the table {table} is not there: get Channel-Bench-Macro's mobilenet.csv, or give --table")
    out = of_network(out, OUT, network)
    if quick:
        out = out.with_name("quick_" + out.name)
        exact_seeds = noisy_seeds = 1
    read = functools.cache(lambda: Table.read(table, network))
    noisy_budgets = BUDGETS[:1] if quick else BUDGETS
    for kind, seeds, budgets in (("exact", exact_seeds, BUDGETS), ("noisy", noisy_seeds, noisy_budgets)):
        for name in SEARCHERS:
            for budget in budgets:
                key = {"searcher": name, "scores": kind, "budget": str(budget), "seeds": f"0-{seeds - 1}"}
                if finished(out, key) or (kind, name) == ("noisy", "random, uniform"):
                    continue
                row = cell(read(), name, kind, budget, seeds)
                append_row(out, row)
                print(*row.values(), sep="  ", file=sys.stderr, flush=True)
    figure(out)


if __name__ == "__main__":
    typer.run(main)
