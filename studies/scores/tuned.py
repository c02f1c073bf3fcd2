"""Does a score say which widths will train best? With shared weights, and after some steps of fine-tuning.

For every run of `studies.cifar` given, the networks that the table has trained from scratch at the run's budget are
scored by the mean loss on held-out training images: with the weights they share in the run's supernet, and each after
as many steps by itself as `--steps` says, at the shares of the supernet's learning rate that `--lr-shares` says
(`bcnet.stages.tuning`). Kendall's tau compares the order of these scores with that of the table's test top-1, the
mean over all trainings from scratch (`tau_top1`), and with that after the most steps at the same rate
(`tau_most_steps`). Magnitude pruning's networks are left out: they are far below the others by any score.

This looks at test results, to explain scores and never to choose widths.

    python -m studies.scores.tuned RUN [RUN ...] [--steps 0,40,80,160,320] [--lr-shares 0.2,1] [--threads 1]

writes `results/tuned_scores.csv`, a row for every run, share and number of steps.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import mean
from typing import Annotated

import torch
import typer
from scipy.stats import kendalltau

from bcnet.space import Widths
from studies.scores.noise import RunScorer
from studies.shared.provenance import ROOT, append_row, finished, provenance, rows

OUT = ROOT / "results" / "tuned_scores.csv"
TABLE = ROOT / "results" / "cifar_table.csv"
STEPS = "0,40,80,160,320"
LR_SHARES = "0.2,1"


def trained_networks(table: Path, budget: str) -> dict[Widths, float]:
    """Widths that the table has trained from scratch at a budget, with their mean test top-1."""
    found: dict[Widths, list[float]] = {}
    for row in rows(table):
        if row["budget"] == budget and row["start"] in ("scratch", "again") and row["method"] != "magnitude":
            found.setdefault(tuple(map(int, row["widths"].split())), []).append(float(row["top1"]))
    return {widths: mean(top1) for widths, top1 in found.items()}


def main(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    steps: Annotated[str, typer.Option(help="Of fine-tuning, with commas; 0 for shared weights.")] = STEPS,
    lr_shares: Annotated[str, typer.Option(help="Of the supernet's learning rate, with commas.")] = LR_SHARES,
    table: Annotated[Path, typer.Option(help="Of `studies.cifar`.")] = TABLE,
    threads: Annotated[int, typer.Option(help="Of every pass.")] = 1,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Score with every share and number of steps, and add the rows that are not there."""
    torch.set_num_threads(threads)
    numbers = sorted({int(part) for part in steps.split(",")}, reverse=True)
    shares = sorted({float(part) for part in lr_shares.split(",")})
    for run in runs:
        rows_of_shares = [
            [{"run": run.name, "lr_share": f"{share:g}", "steps": str(number)} for number in numbers]
            for share in shares
        ]
        missing = [keys for keys in rows_of_shares if not all(finished(out, key) for key in keys)]
        if missing:
            scorer = RunScorer.of(run)
            trained = trained_networks(table, str(scorer.context.settings.budget.macs))
            for keys in missing:
                _score(scorer, trained, keys, out)


def _score(scorer: RunScorer, trained: dict[Widths, float], keys: list[dict[str, str]], out: Path) -> None:
    """The rows of `keys`, which share a learning rate, most steps first, as far as they are not there."""
    most: list[float] = []
    for key in keys:
        start = time.perf_counter()
        found = scorer.tuned_scores(list(trained), int(key["steps"]), tune_lr_share=float(key["lr_share"]))
        seconds = (time.perf_counter() - start) / len(found)
        most = most or found
        figures = {
            "networks": len(found),
            "tau_top1": round(float(kendalltau(found, list(trained.values())).statistic), 3),
            "tau_most_steps": round(float(kendalltau(found, most).statistic), 3),
            "most_steps": keys[0]["steps"],
            "seconds_per_network": round(seconds, 2),
            "images": sum(len(labels) for _, labels in scorer.context.workload.validation),
            "supernet_epochs": scorer.context.settings.supernet.epochs,
            "strategy": scorer.context.settings.strategy,
        }
        if not finished(out, key):
            append_row(out, {**key, **figures, **provenance()})
        print(*(f"{name}={value}" for name, value in (key | figures).items()), flush=True)


if __name__ == "__main__":
    typer.run(main)
