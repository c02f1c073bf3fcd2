"""Would a supernet rank widths alike on other images? By accuracy, and by loss.

For every run of `bcnet search` given, random widths near its budget are scored, from the sides that its supernet was
trained by, on each of the batches that took no part in its training: those that score candidates, and those that score
the best again. `agreement` is Kendall's tau between the scores on one half of the batches and those on the other, the
mean over all ways to halve them: 1 where the images do not matter, 0 where they alone do. `spread` is the standard
deviation of the scores on all images, in their units. No test image is looked at.

    python -m studies.scores.noise RUN [RUN ...] [--widths 48] [--threads 1]

writes `results/score_noise.csv`, two rows for each run.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import torch
import typer
from scipy.stats import kendalltau

import bcnet
from bcnet.searchers import Metric, Random
from bcnet.space import Problem, Widths
from bcnet.stages import Context, scorer_of, supernet_evaluator
from bcnet.supernet import Supernet
from studies.ranking.statistics import Array
from studies.shared.provenance import ROOT, append_row, finished, provenance

OUT = ROOT / "results" / "score_noise.csv"


@dataclass(frozen=True)
class RunScorer:
    """The supernet of a run, with its images."""

    run: Path
    context: Context
    supernet: Supernet

    @classmethod
    def of(cls, run: Path) -> RunScorer:
        """That of a run of networks and data by name, whose supernet is trained."""
        return cls(run, Context.of_run(run), bcnet.Run.open(run).supernet())

    @property
    def batches(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Those that took no part in training the supernet."""
        return [*self.context.workload.validation, *self.context.workload.fresh]

    def candidates(self, count: int) -> list[Widths]:
        """Random widths between 0.97 and 1.0 of the run's budget."""
        settings = self.context.settings
        problem = Problem.of(self.context.workload.space, settings.budget, settings.seed)
        return list(itertools.islice(itertools.chain.from_iterable(Random(count).proposals(problem)), count))

    def scores(self, candidates: list[Widths], metric: Metric) -> Array:
        """Scores of every candidate on every batch, shape `(candidates, batches)`."""
        context = self.changed(score=metric)
        evaluators = [supernet_evaluator(context, self.supernet, [batch]) for batch in self.batches]
        return np.array([[score(widths) for score in evaluators] for widths in candidates])

    def tuned_scores(self, candidates: list[Widths], steps: int, **changes: object) -> list[float]:
        """Negative losses on the images that score candidates, after `steps` of fine-tuning each, by other settings."""
        scorer = scorer_of(self.changed(tune_steps=steps, finalist_steps=0, score="loss", **changes), self.supernet)
        return [scorer.score(widths) for widths in candidates]

    def changed(self, **changes: object) -> Context:
        """What scores are made in: the run, with other settings."""
        return dataclasses.replace(self.context, settings=self.context.settings.model_copy(update=changes))


def agreement(scores: Array) -> float:
    """The mean of Kendall's tau between both halves of the columns of `scores`, over all ways to halve them."""
    return float(np.mean([kendalltau(*halves).statistic for halves in _halves(scores)]))


def _halves(scores: Array) -> Iterator[tuple[Array, Array]]:
    columns = set(range(scores.shape[1]))
    for chosen in itertools.combinations(sorted(columns), len(columns) // 2):
        yield scores[:, chosen].mean(axis=1), scores[:, sorted(columns - set(chosen))].mean(axis=1)


def main(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    widths: Annotated[int, typer.Option(help="How many, near the budget.")] = 48,
    threads: Annotated[int, typer.Option(help="Of every pass.")] = 1,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Score, compare the halves, and add the rows that are not there."""
    torch.set_num_threads(threads)
    for run in runs:
        key = {"run": run.name, "widths": str(widths)}
        same = {**key, "model": bcnet.Run.open(run).settings.model}  # runs of others may have the same name
        missing = [metric for metric in get_args(Metric) if not finished(out, {**same, "metric": metric})]
        if not missing:
            continue
        scorer = RunScorer.of(run)
        candidates = scorer.candidates(widths)
        for metric in missing:
            scores = scorer.scores(candidates, metric)
            settings = scorer.context.settings
            figures = {
                "metric": metric,
                "agreement": round(agreement(scores), 3),
                "spread": round(float(scores.mean(axis=1).std()), 4),
                "batches": scores.shape[1],
                "images": sum(len(labels) for _, labels in scorer.batches),
                "model": settings.model,
                "strategy": settings.strategy,
                "supernet_epochs": settings.supernet.epochs,
                "budget": settings.budget.macs,
                "seed": settings.seed,
            }
            append_row(out, {**key, **figures, **provenance()})
            print(run.name, *(f"{name}={figures[name]}" for name in ("metric", "agreement", "spread")), flush=True)


if __name__ == "__main__":
    typer.run(main)
