"""Which records of a supernet's training should the prior believe? Judged by 16,384 trained networks.

The records are those of real trainings of Channel-Bench-Macro's MobileNet: the files that `studies.ranking` leaves, or
one short training of this study's own (see `studies.shared.short_training`). Every rule makes potential errors and a
prior of them, which are held against the table of networks that were each trained alone:

- `correlation`: Spearman's, between the potential errors and the mean errors of all networks of the table with the same
  width, each centred within its group;
- `samples_mean`, `samples_best`: accuracy of populations of 40 from the prior, and of the best of each;
- `best_permille`, `best_percent`: evaluations after which evolution from the prior meets one of the best 0.1 % and 1 %
  under the budget with exact scores, over seeds (quartiles and median; 2,000 are the limit).

Beside the rules: "no prior" (evolution from random widths near the budget) and "uniform" (a prior of equal rows).
Finished cells are rows of the CSV and are never computed again.

    python -m studies.prior.records [--quick] [--records runs/ranking/*/records.safetensors] [--out results/records.csv]
"""

from __future__ import annotations

import contextlib
import csv
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from safetensors.torch import load_file
from scipy.stats import spearmanr

from bcnet.prior import Prior, potential_errors, prior_of_errors, select_records
from bcnet.searchers import Candidate, Evolution, search_widths
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.train import LossRecords
from studies.ranking.channel_bench_macro import BUDGETS, Reached, Table
from studies.ranking.channel_bench_macro import DATA as TABLE
from studies.shared.provenance import ROOT, append_row, finished, provenance
from studies.shared.short_training import CIFAR10, ShortTraining

OUT = ROOT / "results" / "records.csv"
RANKING = ROOT / "runs" / "ranking"
OWN = ShortTraining("channel_bench_mobilenet", 16, steps=1000, lr=0.1, batch_size=64, num_choices=4)
POPULATIONS = 10
SHARES = (0.001, 0.01)
Errors = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Rule:
    """Settings of `select_records`; `logarithm` takes the logarithm of the losses first, `additive` fits a sum.

    The additive fit regresses the comparable losses on the widths of all groups at once, instead of taking the mean
    loss of each width.
    """

    rule: str = "running-mean"
    keep: int | None = None
    since: float = 0.0
    logarithm: bool = False
    additive: bool = False

    def __call__(self, table: Table, records: LossRecords) -> Errors:
        """Potential errors, one vector per group."""
        losses = np.log(records.losses) if self.logarithm else records.losses
        widths, values = select_records(
            records.steps, records.widths, losses, keep=self.keep, since=self.since, rule=self.rule
        )
        return (additive_errors if self.additive else potential_errors)(table.space, widths, values)


def additive_errors(space: WidthSpace, widths: np.ndarray, losses: np.ndarray) -> Errors:
    """Least squares of the losses on one indicator per group and choice, shrunk by one record's worth."""
    groups = space.groups
    owner = np.repeat(np.arange(len(groups)), [len(g.choices) for g in groups])
    columns = [widths[:, g] == choice for g, group in enumerate(groups) for choice in group.choices]
    x = np.stack(columns, axis=1).astype(float)
    x -= x.mean(axis=0)
    found = np.linalg.solve(x.T @ x + np.eye(len(owner)), x.T @ (losses - losses.mean()))
    return tuple(found[owner == g] for g in range(len(groups)))


RULES = {
    "lowest 100, as they are": Rule("naive", 100),
    "lowest 100, rank in window": Rule("rank", 100),
    "lowest 100, minus running mean": Rule(keep=100),
    "lowest 500, minus running mean": Rule(keep=500),
    "lowest 1000, minus running mean": Rule(keep=1000),
    "lowest 100 of the second half": Rule(keep=100, since=0.5),
    "all, as they are": Rule("naive"),
    "all, rank in window": Rule("rank"),
    "all, minus running mean": Rule(),
    "all, logarithm": Rule(logarithm=True),
    "all, additive fit": Rule(additive=True),
    "second half, minus running mean": Rule(since=0.5),
    "second half, rank in window": Rule("rank", since=0.5),
    "second half, additive fit": Rule(since=0.5, additive=True),
    "last quarter, minus running mean": Rule(since=0.75),
}


def true_errors(table: Table) -> Errors:
    """Minus the mean accuracy of all networks of the table with a width, one vector per group."""
    widths = np.array(list(table.rows))
    accuracies = table.score("exact")
    return tuple(
        np.array([-accuracies[widths[:, g] == choice].mean() for choice in group.choices])
        for g, group in enumerate(table.space.groups)
    )


def centred(errors: Errors) -> np.ndarray:
    return np.concatenate([e - e.mean() for e in errors])


def uniform_prior(table: Table, budget: Budget) -> Prior:
    """Equal rows, whatever the budget."""
    sizes = [len(group.choices) for group in table.space.groups]
    rows = tuple(np.full(size, 1 / size) for size in sizes)
    zeros = tuple(np.zeros(size) for size in sizes)
    return Prior(table.space, table.space.feasible(budget), rows, zeros, np.inf, 0.0, 0.0)


def evaluations(table: Table, prior: Prior | None, budget: Budget, seed: int) -> list[float]:
    """Evaluations after which evolution meets one of the best of each share; infinity where it does not."""
    accuracies = table.score("exact")
    limits = table.space.feasible(budget)
    inside = np.sort(accuracies[table.macs <= limits.macs])
    bars = [inside[-max(1, int(len(inside) * share))] for share in SHARES]
    met = [np.inf] * len(bars)

    def watch(candidate: Candidate, done: int, _: int) -> None:
        accuracy = accuracies[table.rows[candidate.widths]]
        met[:] = [done if accuracy >= bar and known == np.inf else known for bar, known in zip(bars, met, strict=True)]
        if max(met) < np.inf:
            raise Reached

    def score(widths: Widths) -> float:
        return float(accuracies[table.rows[widths]])

    with contextlib.suppress(Reached):
        search_widths(
            table.space, score, budget, searcher=Evolution(prior=prior, macs_from=0.0), seed=seed, callback=watch
        )
    return met


def cell(table: Table, make: Callable[[Budget], Prior | None], ratio: float, seeds: int) -> dict[str, str]:
    """One rule under one budget."""
    budget = Budget(macs=ratio)
    prior = make(budget)
    figures = {"samples_mean": "", "samples_best": ""}
    if prior is not None:
        samples = [prior.sample(40, budget, np.random.default_rng(seed)).widths for seed in range(POPULATIONS)]
        accuracies = [[table.score("exact")[table.rows[widths]] for widths in sample] for sample in samples]
        figures["samples_mean"] = f"{np.mean([np.mean(a) for a in accuracies]):.3f}"
        figures["samples_best"] = f"{np.mean([np.max(a) for a in accuracies]):.3f}"
    met = np.array([evaluations(table, prior, budget, seed) for seed in range(seeds)])
    for name, counts in zip(("best_permille", "best_percent"), met.T, strict=True):
        for quantile, share in (("q25", 0.25), ("median", 0.5), ("q75", 0.75)):
            value = np.quantile(counts, share, method="higher")
            figures[f"{name}_{quantile}"] = f"{value:.0f}" if np.isfinite(value) else "never"
    return figures


def figure(out: Path) -> None:
    """Correlation of the potential errors, and evaluations to the best 0.1 % at 50 % of the MACs, by rule."""
    from matplotlib.figure import Figure

    with out.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if float(row["budget"]) == 0.5]
    names = list(dict.fromkeys(row["rule"] for row in rows))
    supernets = list(dict.fromkeys(row["supernet"] for row in rows if row["supernet"] != "-"))
    picture = Figure(figsize=(11, 0.3 * len(names) + 1.2), layout="constrained")
    left, right = picture.subplots(1, 2, sharey=True)
    for row in rows:
        colour = f"C{supernets.index(row['supernet'])}" if row["supernet"] in supernets else "black"
        height = names.index(row["rule"])
        if row["correlation"]:
            left.plot(float(row["correlation"]), height, "o", color=colour)
        low, median, high = (row[f"best_permille_{q}"] for q in ("q25", "median", "q75"))
        if median != "never":
            right.plot(
                [float(low), 2000 if high == "never" else float(high)], [height, height], color=colour, alpha=0.5
            )
            right.plot(float(median), height, "o", color=colour)
    for number, name in enumerate(supernets):
        left.plot([], [], "o", color=f"C{number}", label=name)
    left.legend(fontsize="small")
    left.set_yticks(range(len(names)), names)
    left.set(xlabel="rank correlation of the potential errors with the table")
    right.set(xscale="log", xlabel="evaluations to the best 0.1 % at 50 % of the MACs")
    for axis in (left, right):
        axis.grid(axis="x", alpha=0.3)
    picture.savefig(out.with_suffix(".svg"), metadata={"Date": None})


def read(path: Path) -> LossRecords:
    """The records of a file, whatever training it belongs to."""
    if not path.is_file():
        raise SystemExit(f"the records {path} are not there: give records.safetensors of a training")
    return LossRecords.from_tensors(load_file(path))


def main(
    quick: Annotated[bool, typer.Option(help="A few steps and seeds, to see that everything runs.")] = False,
    records: Annotated[list[Path] | None, typer.Option(help="Records of trainings of the table's network.")] = None,
    out: Annotated[Path, typer.Option(help="CSV of finished cells; the figure goes beside it.")] = OUT,
    runs: Annotated[Path, typer.Option(help="Folder of this study's own training.")] = ROOT / "runs" / "records",
    data: Annotated[Path, typer.Option(help="CIFAR-10 as Parquet files, for that training.")] = CIFAR10,
    seeds: int = 50,
) -> None:
    """How good are the priors that different rules make of a supernet's loss records?"""
    if not TABLE.is_file():
        raise SystemExit(f"the table {TABLE} is not there: get Channel-Bench-Macro's mobilenet.csv")
    found = list(records or sorted(RANKING.glob("*/records.safetensors")))
    training = OWN
    if quick:
        out = out.with_name("quick_" + out.name)
        seeds = 1
        found = []
        training = ShortTraining("channel_bench_mobilenet", 8, steps=4, lr=0.1, num_choices=4)
    table = Table.read(TABLE)
    sources: dict[str, Callable[[], LossRecords]] = {p.parent.name: functools.partial(read, p) for p in found}
    if not sources:
        sources = {str(training): functools.partial(training.records, runs / str(training.steps), data)}
    references = {"no prior": lambda budget: None, "uniform": functools.partial(uniform_prior, table)}
    for name, make in references.items():
        _finish(out, {"supernet": "-", "records": "0", "rule": name}, table, make, "", seeds)
    truth = centred(true_errors(table))
    for source, load in sources.items():
        known = load()
        for name, rule in RULES.items():
            errors = rule(table, known)
            correlation = f"{spearmanr(centred(errors), truth).statistic:.3f}"
            key = {"supernet": source, "records": str(len(known)), "rule": name}
            _finish(out, key, table, functools.partial(prior_of_errors, errors, table.space), correlation, seeds)
    figure(out)


def _finish(
    out: Path,
    source: dict[str, str],
    table: Table,
    make: Callable[[Budget], Prior | None],
    correlation: str,
    seeds: int,
) -> None:
    for ratio in BUDGETS:
        key = {**source, "budget": str(ratio), "seeds": f"0-{seeds - 1}"}
        if not finished(out, key):
            row = {**key, "correlation": correlation, **cell(table, make, ratio, seeds), **provenance()}
            append_row(out, row)
            print(*row.values(), sep="  ", file=sys.stderr, flush=True)


if __name__ == "__main__":
    typer.run(main)
