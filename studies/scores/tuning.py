"""How much of a score after fine-tuning is the order of the images in it?

For every run of `bcnet search` given whose finalists were scored, these and as many random widths near the budget are
tuned from its supernet and scored on held-out training images (`bcnet.stages.tuning`), each in several orders of the
training images. A score is taken for a sum of what is the network's, what is the order's and is the same for all
networks, and noise: s_ij = network_i + order_j + noise_ij. In nats, `noise` is the standard deviation of the last, for
one order, and `signal` that of the first over the networks; `agreement` is the mean of Kendall's tau between any two
orders. The mean over n orders has a noise smaller by the square root of n, at n times the cost; `tau_most_steps`
compares the ranks by such means with those after the most steps. No test image is looked at.

    python -m studies.scores.tuning RUN [RUN ...] [--steps 80,320] [--orders 4] [--threads 1]

writes `results/tuning_noise.csv`, a row for every run, kind of widths and number of steps.
"""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from scipy.stats import kendalltau

from bcnet.space import Widths
from studies.ranking.statistics import Array
from studies.scores.noise import RunScorer
from studies.shared.provenance import ROOT, append_row, finished, provenance

OUT = ROOT / "results" / "tuning_noise.csv"
FINALISTS = "finalists"
RANDOM = "random near the budget"


def finalists(run: Path) -> list[Widths]:
    """The widths that a run scored a second time.

    Raises:
        typer.BadParameter: there are not two, so nothing to tell noise from.
    """
    file = run / "result.json"
    search = json.loads(file.read_text())["search"] if file.exists() else None
    rescored = search["rescored"] if search else ()
    if len(rescored) < 2:
        rule = "noise is measured on two or more; give the --out of a `bcnet search` that is at its end"
        raise typer.BadParameter(f"{run} has {len(rescored)} finalists, and {rule}")
    return [tuple(candidate["widths"]) for candidate in rescored]


def tuned(scorer: RunScorer, candidates: list[Widths], steps: int, orders: int) -> Array:
    """Negative losses after `steps` of fine-tuning, shape `(candidates, orders)`."""
    return np.array([scorer.tuned_scores(candidates, steps, seed=order) for order in range(orders)]).T


def noise(scores: Array) -> float:
    """The standard deviation of what neither the row nor the column of a score explains."""
    rows, columns = scores.shape
    rest = scores - scores.mean(axis=1, keepdims=True) - scores.mean(axis=0, keepdims=True) + scores.mean()
    return float(np.sqrt((rest**2).sum() / ((rows - 1) * (columns - 1))))


def signal(scores: Array) -> float:
    """The standard deviation between rows, less the noise that their means still have."""
    left = scores.mean(axis=1).var(ddof=1) - noise(scores) ** 2 / scores.shape[1]
    return float(np.sqrt(max(left, 0.0)))


def agreement(scores: Array) -> float:
    """The mean of Kendall's tau between any two columns."""
    pairs = itertools.combinations(scores.T, 2)
    return float(np.mean([kendalltau(one, other).statistic for one, other in pairs]))


def main(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, at their end.")],
    steps: Annotated[str, typer.Option(help="Of fine-tuning, with commas.")] = "80,320",
    orders: Annotated[int, typer.Option(help="In which every network is tuned.", min=2)] = 4,
    threads: Annotated[int, typer.Option(help="Of every pass.")] = 1,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Tune and score in every order, and add the rows that are not there."""
    torch.set_num_threads(threads)
    numbers = sorted({int(part) for part in steps.split(",")}, reverse=True)
    for run in runs:
        rows_of_kinds = {
            kind: [{"run": run.name, "networks": kind, "orders": str(orders), "steps": str(n)} for n in numbers]
            for kind in (FINALISTS, RANDOM)
        }
        missing = {kind: keys for kind, keys in rows_of_kinds.items() if not all(finished(out, key) for key in keys)}
        if missing:
            best = finalists(run)
            scorer = RunScorer.of(run)
            for kind, keys in missing.items():
                _score(scorer, best if kind == FINALISTS else scorer.candidates(len(best)), keys, out)


def _score(scorer: RunScorer, candidates: list[Widths], keys: list[dict[str, str]], out: Path) -> None:
    """The rows of `keys`, most steps first, as far as they are not there."""
    most: Array | None = None
    for key in keys:
        start = time.perf_counter()
        scores = tuned(scorer, candidates, int(key["steps"]), int(key["orders"]))
        seconds = (time.perf_counter() - start) / scores.size
        most = scores if most is None else most
        settings = scorer.context.settings
        figures = {
            "count": len(candidates),
            "mean": round(float(scores.mean()), 4),
            "noise": round(noise(scores), 4),
            "signal": round(signal(scores), 4),
            "agreement": round(agreement(scores), 3),
            "tau_most_steps": round(float(kendalltau(scores.mean(axis=1), most.mean(axis=1)).statistic), 3),
            "most_steps": keys[0]["steps"],
            "seconds_per_network": round(seconds, 2),
            "images": sum(len(labels) for _, labels in scorer.context.workload.validation),
            "lr_share": settings.tune_lr_share,
            "supernet_epochs": settings.supernet.epochs,
            "strategy": settings.strategy,
            "budget": settings.budget.macs,
            "seed": settings.seed,
        }
        if not finished(out, key):
            append_row(out, {**key, **figures, **provenance()})
        print(*(f"{name}={value}" for name, value in (key | figures).items()), flush=True)


if __name__ == "__main__":
    typer.run(main)
