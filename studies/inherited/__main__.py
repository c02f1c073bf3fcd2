"""Does a supernet that starts from the trained original rank widths better than one that starts from scratch?

The paper trains its supernet from scratch. Here two supernets are trained by its strategy, BC with complement, for as
many epochs: one from scratch, one from the weights of the trained original, whose channels are put in an order that
gives both ends of a group as much importance: the most important first and last, the least important in the middle.
Both score the same random widths near the budget. So does what the usual search scores by, an epoch of training from
the original. Each score is compared with what it stands for: the loss of the network after a whole training from the
original, on images that nobody had seen (Kendall's tau, and its 95 % interval over resampled widths).

Originals, images and trainings are those of `studies.spending`: with the same `--runs` they are not trained again.

    python -m studies.inherited [--quick] [--network vgg19_quarter] [--seed 0] [--threads 1]
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import typer

from bcnet.costs import Budget
from bcnet.models import create
from bcnet.searchers import SupernetEvaluator
from bcnet.space import Widths
from bcnet.supernet import Supernet, both_ends, by_importance, reorder
from bcnet.train import Complementary, derived_seed
from studies.ranking.statistics import Estimate, kendall, resamples
from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT
from studies.shared.training import TrainingFolder
from studies.spending.__main__ import DATA, Job, loss_and_accuracy

Start = Literal["scratch", "original"]
_RATIO = 0.25
_NETWORKS = 24


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Digits, few widths; writes results/quick_*.")] = False,
    network: Annotated[str, typer.Option(help="vgg19_quarter or resnet20.")] = "vgg19_quarter",
    seed: Annotated[int, typer.Option(help="Of the original, the supernets and the widths.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    runs: Annotated[Path | None, typer.Option(help="Where originals, supernets and scores are.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the CSV file.")] = ROOT / "results",
) -> None:
    """Compute the rows that are missing."""
    if not quick and not DATA.exists():
        raise SystemExit(f"skipped: CIFAR-10 is read from {DATA}, which is not there")
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        name = "resnet_digits" if quick else network
        place = runs or (Path(folder) if quick else Path("runs") / f"spending-{name}")
        comparison = Comparison(Job(name, seed, place), 4 if quick else _NETWORKS)
        lengths: dict[Start, tuple[int, ...]] = {"original": (1, 2, 4, 8), "scratch": (4, 8)}
        kinds: list[tuple[str, int, Callable[[], Scores]]] = [
            (f"supernet from {'the ' * (start == 'original')}{start}", n, partial(comparison.shared, start, n))
            for start, epochs in lengths.items()
            for n in ((1,) if quick else epochs)
        ]
        kinds.append(("a training of its own", 1, partial(comparison.trained, 1)))
        cells = [
            Cell(
                {"network": name, "seed": seed, "macs": _RATIO, "widths": comparison.count, "score": kind, "epochs": n},
                partial(comparison.row, scores),
            )
            for kind, n, scores in kinds
        ]
        failed = run_cells(cells, out / ("quick_inherited.csv" if quick else "inherited.csv"), place / "logs")
    raise typer.Exit(bool(failed))


@dataclass(frozen=True)
class Scores:
    """Accuracies in percent and losses in nats of all widths, and the seconds that they took, trainings included."""

    accuracies: tuple[float, ...]
    losses: tuple[float, ...]
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """`count` widths near the budget, their scores and what they are worth."""

    job: Job
    count: int

    @cached_property
    def widths(self) -> list[Widths]:
        """Random widths, no two alike."""
        space = self.job.owner[0]
        drawn: dict[Widths, None] = {}
        number = 0
        while len(drawn) < self.count:
            drawn[space.random(Budget(macs=_RATIO), seed=1000 * self.job.seed + number)] = None
            number += 1
        return [*drawn]

    def shared(self, start: Start, epochs: int) -> Scores:
        """Return the scores of a supernet that was trained for so many epochs."""
        space, ranked, _ = self.job.owner
        batches, scoring, _ = self.job.parts
        if start == "original":
            model = reorder(ranked, space, both_ends(by_importance(ranked, space), space), scoring[0][0][:2])
        else:
            torch.manual_seed(derived_seed(self.job.seed, "supernet"))
            _, channels, size, _ = scoring[0][0].shape
            model = create(self.job.network, num_classes=10, in_channels=channels, image_size=size).build()
        supernet = Supernet(model, space)
        kept = TrainingFolder(
            self.job.runs / f"supernet-{start}-{epochs}-{self.job.seed}",
            {"network": self.job.network, "seed": self.job.seed, "start": start, "epochs": epochs},
        )
        began = time.monotonic()
        kept.train(
            supernet, Complementary(), batches, self.job.recipe.with_changes({"epochs": epochs}), seed=self.job.seed
        )
        kept.load(supernet)
        accuracy, loss = SupernetEvaluator(supernet, scoring), SupernetEvaluator(supernet, scoring, "loss")
        return Scores(
            tuple(accuracy(widths) for widths in self.widths),
            tuple(-loss(widths) for widths in self.widths),
            time.monotonic() - began,
        )

    def trained(self, epochs: float) -> Scores:
        """Return the scores of trainings of so many epochs, each from the original."""
        return self._trained(epochs, self.job.parts[1], "scored")

    @cached_property
    def worth(self) -> Scores:
        """What the scores stand for: whole trainings, judged on images of their own."""
        return self._trained(self.job.recipe.epochs, self.job.parts[2], "judged")

    def _trained(self, epochs: float, images: list[tuple[torch.Tensor, torch.Tensor]], name: str) -> Scores:
        file = self.job.runs / f"{name}-{epochs}-{self.job.seed}.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        known = {tuple(row["widths"]): row for row in map(json.loads, lines)}
        for widths in self.widths:
            if widths not in known:
                began = time.monotonic()
                loss, accuracy = loss_and_accuracy(self.job.trained(widths, epochs), images)
                row = {"widths": widths, "loss": loss, "accuracy": accuracy, "seconds": time.monotonic() - began}
                with file.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
                known[widths] = row
        rows = [known[widths] for widths in self.widths]
        accuracies, losses = (tuple(row[what] for row in rows) for what in ("accuracy", "loss"))
        return Scores(accuracies, losses, sum(row["seconds"] for row in rows))

    def row(self, scores: Callable[[], Scores]) -> dict[str, object]:
        """How well the scores rank the widths by what they are worth."""
        found, counts = scores(), resamples(self.count)
        worth = np.array(self.worth.losses)

        def tau(values: tuple[float, ...]) -> Estimate:
            return Estimate.of(lambda weights: kendall(np.array(values), worth, weights), counts)

        chosen = int(np.argmin(found.losses))
        return {
            **tau(found.losses).columns("tau_by_loss"),
            **tau(tuple(-value for value in found.accuracies)).columns("tau_by_accuracy"),
            "chosen_loss": round(float(worth[chosen]), 5),
            "best_loss": round(float(worth.min()), 5),
            "mean_loss": round(float(worth.mean()), 5),
            "seconds": round(found.seconds, 1),
        }


if __name__ == "__main__":
    typer.run(main)
