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

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import torch
import typer
from safetensors.torch import load_file
from scipy.stats import kendalltau

from bcnet.distributed import ProcessGroup
from bcnet.progress.base import Reporter
from bcnet.run.directory import RunDirectory, read_settings
from bcnet.run.settings import Settings
from bcnet.run.subject import Subject, open_source, prepare
from bcnet.searchers import Metric, Random
from bcnet.space import Widths
from bcnet.space.problem import Problem
from bcnet.stages.base import Context
from bcnet.stages.scores import supernet_evaluator
from bcnet.stages.tuning import scorer_of
from bcnet.supernet import Supernet
from studies.ranking.statistics import Array
from studies.shared.provenance import ROOT, append_row, finished, provenance

OUT = ROOT / "results" / "score_noise.csv"


@dataclass(frozen=True)
class Scorer:
    """The supernet of a run, with its images."""

    run: Path
    settings: Settings
    subject: Subject
    supernet: Supernet

    @classmethod
    def of(cls, run: Path) -> Scorer:
        """That of a run of networks and data by name, whose supernet is trained."""
        settings = read_settings(run)
        source = open_source(settings.model, settings.data, image_size=settings.image_size, seed=settings.seed)
        subject = prepare(source, settings)
        supernet = Supernet(subject.model, subject.space)
        supernet.load_state_dict(load_file(run / "supernet.safetensors"))
        return cls(run, settings, subject, supernet.eval())

    @property
    def batches(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Those that took no part in training the supernet."""
        return [*self.subject.validation, *self.subject.fresh]

    def candidates(self, count: int) -> list[Widths]:
        """Random widths between 0.97 and 1.0 of the run's budget."""
        problem = Problem.of(self.subject.space, self.settings.budget, self.settings.seed)
        return list(itertools.islice(itertools.chain.from_iterable(Random(count).proposals(problem)), count))

    def scores(self, candidates: list[Widths], metric: Metric) -> Array:
        """Scores of every candidate on every batch, shape `(candidates, batches)`."""
        context = self.context(score=metric)
        judges = [supernet_evaluator(context, self.supernet, [batch]) for batch in self.batches]
        return np.array([[judge(widths) for judge in judges] for widths in candidates])

    def tuned_scores(self, candidates: list[Widths], steps: int, **changes: object) -> list[float]:
        """Negative losses on the images that score candidates, after `steps` of fine-tuning each, by other settings."""
        context = self.context(tune_steps=steps, finalist_steps=0, score="loss", **changes)
        judge = scorer_of(context, self.supernet)
        return [judge.score(widths) for widths in candidates]

    def context(self, **changes: object) -> Context:
        """What scores are made in: the run, with other settings."""
        settings = self.settings.model_copy(update=changes)
        return Context(settings, self.subject, RunDirectory(self.run, settings), Reporter(), ProcessGroup())


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
        missing = [metric for metric in get_args(Metric) if not finished(out, {**key, "metric": metric})]
        if not missing:
            continue
        scorer = Scorer.of(run)
        candidates = scorer.candidates(widths)
        for metric in missing:
            scores = scorer.scores(candidates, metric)
            settings = scorer.settings
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
