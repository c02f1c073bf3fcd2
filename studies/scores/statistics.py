"""Would a supernet rank widths alike with other statistics of batch norm? The paper does not say which it takes.

Ours are those of the batch that is scored, of 2,048 images. For every run of `bcnet search` given, random widths near
its budget are scored on the images that score candidates, from the sides that its supernet was trained by, with the
statistics of batches of that many images, of fewer, and with those of 20 training batches, as a network has them that
`bcnet.recalibrate` has made ready for use. `tau` is Kendall's, between these scores and the usual ones; `mean` and
`spread` are the mean and the standard deviation of the scores over the widths, in their units. No test image is looked
at.

    python -m studies.scores.statistics RUN [RUN ...] [--widths 48] [--threads 1]

writes `results/score_statistics.csv`, a row for each metric and kind of statistics.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import torch
import typer
from scipy.stats import kendalltau

import bcnet
from bcnet.searchers import Metric
from bcnet.space import Widths
from bcnet.stages import network_evaluator, recalibrated, supernet_evaluator
from bcnet.supernet import build
from bcnet.train import STRATEGIES
from studies.ranking.statistics import Array
from studies.scores.noise import RunScorer
from studies.shared.provenance import ROOT, append_row, finished, provenance

OUT = ROOT / "results" / "score_statistics.csv"
USUAL = "2048 images"
SIZES = {USUAL: 2048, "512 images": 512, "128 images": 128}
TRAINING = "20 training batches"
KINDS = (*SIZES, TRAINING)


def scores(scorer: RunScorer, candidates: list[Widths], metric: Metric, kind: str) -> Array:
    """Scores of every candidate with statistics of this kind, shape `(candidates,)`."""
    if kind == TRAINING:
        return np.array([_with_fixed(scorer, widths, metric) for widths in candidates])
    size = SIZES[kind]
    batches = [
        (part, labels)
        for x, y in scorer.context.workload.validation
        for part, labels in zip(x.split(size), y.split(size), strict=True)
        if len(labels) == min(size, len(y))  # a smaller last one would have other statistics
    ]
    evaluator = supernet_evaluator(scorer.changed(score=metric), scorer.supernet, batches)
    return np.array([evaluator(widths) for widths in candidates])


def _with_fixed(scorer: RunScorer, widths: Widths, metric: Metric) -> float:
    """The mean over the sides, of a network built from each."""
    context = scorer.changed(score=metric)
    workload = context.workload
    settings = context.settings
    found = []
    for side in STRATEGIES[settings.strategy]().sides:
        network = build(workload.model, workload.space, widths, weights=(scorer.supernet, side))
        ready = recalibrated(network, workload.training, settings.seed).eval()
        evaluator = network_evaluator(context, ready, workload.validation, settings.supernet.precision)
        found.append(evaluator(()))
    return float(np.mean(found))


def main(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    widths: Annotated[int, typer.Option(help="How many, near the budget.")] = 48,
    threads: Annotated[int, typer.Option(help="Of every pass.")] = 1,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Score, compare, and add the rows that are not there."""
    torch.set_num_threads(threads)
    for run in runs:
        for metric in get_args(Metric):
            key = {"run": run.name, "widths": str(widths), "metric": metric}
            same = {**key, "model": bcnet.Run.open(run).settings.model}  # runs of others may have the same name
            missing = [kind for kind in KINDS if not finished(out, {**same, "statistics": kind})]
            if not missing:
                continue
            scorer = RunScorer.of(run)
            candidates = scorer.candidates(widths)
            usual = scores(scorer, candidates, metric, USUAL)
            settings = scorer.context.settings
            for kind in missing:
                found = scores(scorer, candidates, metric, kind)
                figures = {
                    "tau": round(float(kendalltau(found, usual).statistic), 3),
                    "mean": round(float(found.mean()), 3),
                    "spread": round(float(found.std()), 4),
                    "model": settings.model,
                    "strategy": settings.strategy,
                    "supernet_epochs": settings.supernet.epochs,
                    "budget": settings.budget.macs,
                    "seed": settings.seed,
                }
                append_row(out, {**key, "statistics": kind, **figures, **provenance()})
                print(run.name, metric, kind, figures["tau"], figures["mean"], figures["spread"], flush=True)


if __name__ == "__main__":
    typer.run(main)
