"""Supernets of Channel-Bench-Macro's MobileNet, trained at equal cost, and their scores of single paths.

Equal cost is an equal number of paths: every step of every supernet trains four paths on one batch, over the same
batches. UA draws four widths, UA with complement and BC without complement draw two, BC with complement draws one,
whether the complement is the rest of the channels or BCNetV2's, which shares the smallest width with the draw. By
the sandwich rule the full width and the narrowest are two of the four, and all but the full width learn its outputs:
AutoSlim's supernet with two random widths, and BC with one, from both sides. The step follows the mean of its terms:
`lr` and `weight_decay` are those of that mean, and are divided and multiplied by the number of terms that the strategy
adds up.

A cell keeps everything in a folder of its own and is never trained or scored twice:

    supernet.safetensors    the weights
    records.safetensors     the loss records of all steps
    scores.json             accuracy and loss of every path scored
    seconds.json            time spent
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from bcnet.data import Batch, DataSet, TrainingBatches, fixed_batches, load, split_validation
from bcnet.files import write_atomic
from bcnet.space import Side, Widths, WidthSpace
from bcnet.supernet import Supernet
from bcnet.train import (
    Bilateral,
    BoundedComplementary,
    Complementary,
    Cosine,
    Progress,
    Recipe,
    Sandwich,
    Strategy,
    Term,
    Unilateral,
    UnilateralComplementary,
    derived_seed,
)
from bcnet.train import (
    Path as TrainedPath,
)
from studies.ranking.channel_bench_macro import MOBILENET, network_called
from studies.shared.training import TrainingFolder

PATHS_PER_STEP = 4


class BilateralSandwich(Sandwich):
    """BC by AutoSlim's rule: the full width, the narrowest from a random side, and random widths from both sides.

    By the labels only the full width is trained; its outputs are what the others learn.
    """

    sides = (Side.LEFT, Side.RIGHT)

    def __init__(self) -> None:
        super().__init__(draws=1)

    def plan(self, space: WidthSpace, generator: torch.Generator) -> tuple[Term, ...]:
        """The full width, which the others learn from, then the narrowest and the random widths."""
        side = self.sides[int(torch.randint(len(self.sides), (), generator=generator))]
        widths = space.sample(generator)
        return (
            Term(space.full, (TrainedPath(space.full, Side.LEFT),)),
            Term(space.narrowest, (TrainedPath(space.narrowest, side),)),
            Term(widths, tuple(TrainedPath(widths, side) for side in self.sides)),
        )


SUPERNETS: dict[str, Callable[[], Strategy]] = {
    "complementary": Complementary,
    "complementary-bounded": BoundedComplementary,
    "unilateral": lambda: Unilateral(draws=4),
    "bilateral": lambda: Bilateral(draws=2),
    "unilateral-complementary": lambda: UnilateralComplementary(draws=2),
    "sandwich": Sandwich,
    "bilateral-sandwich": BilateralSandwich,
}
_SAVE_EVERY = 10  # paths scored


@dataclass(frozen=True)
class Training:
    """How every supernet is trained. `lr` and `weight_decay` hold for the mean of the four losses of a step."""

    image_size: int = 16
    epochs: int = 4
    batch_size: int = 96
    lr: float = 0.2
    weight_decay: float = 5e-5
    warmup_epochs: float = 0.25
    held_out: float = 0.1

    def recipe(self, strategy: Strategy, space: WidthSpace) -> Recipe:
        """The recipe by which `strategy`, which adds up its terms, follows the mean of its paths."""
        terms = len(strategy.plan(space, torch.Generator().manual_seed(0)))
        return Recipe(
            lr=self.lr / terms,
            weight_decay=self.weight_decay * terms,
            batch_size=self.batch_size,
            epochs=self.epochs,
            schedule=Cosine(),
            warmup_epochs=self.warmup_epochs,
        )


@dataclass(frozen=True)
class Scoring:
    """What is scored on what: `widths` of the table, on `images` held out of the training images, in equal batches."""

    widths: int = 200
    images: int = 2048
    score_batch_size: int = 512


@dataclass(frozen=True)
class Score:
    """Top-1 in percent and mean cross-entropy of one path."""

    accuracy: float
    loss: float


@dataclass(frozen=True)
class Workload:
    """The data, cut in two once for all cells, and the width space of the network on it."""

    data: DataSet
    training: TrainingBatches
    validation: list[Batch]
    space: WidthSpace
    device: torch.device
    network: str

    @classmethod
    def open(cls, name: str, how: Training, scoring: Scoring, device: str, network: str = MOBILENET) -> Workload:
        """Load the data called `name` and hold a class-balanced part of its training images out."""
        data = load(name, image_size=how.image_size).to(device)
        training, validation = split_validation(data.train, how.held_out)
        images = validation.subset(range(min(scoring.images, len(validation))))
        return cls(
            data,
            TrainingBatches(training, how.batch_size, data.normaliser, data.augmentation),
            fixed_batches(images, min(scoring.score_batch_size, len(images)), data.normaliser),
            WidthSpace.trace(cls.made(network, data), torch.zeros(2, *data.image_shape), num_choices=4, multiple_of=1),
            torch.device(device),
            network,
        )

    @staticmethod
    def made(network: str, data: DataSet) -> torch.nn.Module:
        """The benchmark's network for the classes and channels of `data`."""
        return network_called(network, data.num_classes, data.image_shape[0])


@dataclass(frozen=True)
class Cell:
    """One supernet of one seed, in a folder of its own below `runs`."""

    supernet: str
    seed: int | str
    training: Training
    data: str
    runs: Path

    @property
    def folder(self) -> Path:
        """Where the cell keeps its files."""
        return self.runs / f"{self.supernet}-{self.training.epochs}epochs-seed{self.seed}"

    @property
    def identity(self) -> dict[str, Any]:
        """What the cell's files are marked with."""
        settings = dataclasses.asdict(self.training)
        return {"supernet": self.supernet, "seed": self.seed, "data": self.data, **settings}

    @property
    def _training(self) -> TrainingFolder:
        return TrainingFolder(self.folder, self.identity)

    def train(self, workload: Workload) -> Supernet:
        """The trained supernet: read where it was trained before, and else trained from the newest checkpoint on."""
        torch.manual_seed(derived_seed(self.seed, "model"))
        supernet = Supernet(workload.made(workload.network, workload.data), workload.space)
        supernet.to(workload.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        kept = self._training
        if not kept.finished:
            strategy = SUPERNETS[self.supernet]()
            with self._timed("training") as lap:
                recipe = self.training.recipe(strategy, workload.space)
                report = functools.partial(_report, kept, lap)
                kept.train(supernet, strategy, workload.training, recipe, seed=self.seed, on_step=report)
        return kept.load(supernet)

    def scores(self, workload: Workload, sample: list[Widths]) -> dict[tuple[Widths, Side], Score]:
        """The scores of `sample` on the sides that the supernet trains, those of earlier calls among them."""
        sides = SUPERNETS[self.supernet]().sides
        known = self._stored(workload)
        missing = [(widths, side) for side in sides for widths in sample if (widths, side) not in known]
        if missing:
            supernet = self.train(workload)
            with self._timed("scoring") as lap:
                for number, (widths, side) in enumerate(missing, 1):
                    known[widths, side] = score(supernet, workload.validation, widths, side)
                    if number % _SAVE_EVERY == 0 or number == len(missing):
                        self._store(workload, known)
                        lap()
                        print(f"{self.folder.name}: {number}/{len(missing)} paths", file=sys.stderr, flush=True)
        return {(widths, side): known[widths, side] for side in sides for widths in sample}

    def seconds(self) -> dict[str, float]:
        """Time spent in `training` and `scoring`, over all resumes."""
        file = self.folder / "seconds.json"
        return json.loads(file.read_text()) if file.exists() else {}

    @contextmanager
    def _timed(self, stage: str) -> Iterator[Callable[[], None]]:
        """Add up the time inside; the function given writes it down, so that a kill loses little of it."""
        start = time.monotonic()
        before = self.seconds()

        def lap() -> None:
            spent = {**before, stage: round(before.get(stage, 0.0) + time.monotonic() - start, 1)}
            write_atomic(self.folder / "seconds.json", json.dumps(spent).encode())

        yield lap
        lap()

    def _store(self, workload: Workload, known: dict[tuple[Widths, Side], Score]) -> None:
        rows = [[list(widths), side.name, s.accuracy, s.loss] for (widths, side), s in known.items()]
        document = {"cell": self.identity, "images": _images(workload), "scores": rows}
        write_atomic(self.folder / "scores.json", json.dumps(document).encode())

    def _stored(self, workload: Workload) -> dict[tuple[Widths, Side], Score]:
        file = self.folder / "scores.json"
        if not file.exists():
            return {}
        document = json.loads(file.read_text())
        if document["cell"] != self.identity or document["images"] != _images(workload):
            raise SystemExit(f"{file} holds scores of other settings: give another --runs, or the settings of before")
        return {
            (tuple(widths), Side[side]): Score(accuracy, loss) for widths, side, accuracy, loss in document["scores"]
        }


def score(supernet: Supernet, batches: list[Batch], widths: Widths, side: Side) -> Score:
    """Accuracy and loss of one path over all images of `batches`."""
    return score_of(lambda images: supernet(images, widths, side), batches)


@torch.inference_mode()
def score_of(network: Callable[[torch.Tensor], torch.Tensor], batches: list[Batch]) -> Score:
    """Accuracy and loss of what gives logits `(batch, classes)` of images over all of `batches`."""
    hits = loss = count = 0.0
    for images, labels in batches:
        logits = network(images).float()
        hits += float((logits.argmax(dim=1) == labels).sum())
        loss += float(functional.cross_entropy(logits, labels, reduction="sum"))
        count += len(labels)
    return Score(100 * hits / count, loss / count)


def _images(workload: Workload) -> list[int]:
    return [len(labels) for _, labels in workload.validation]


def _report(kept: TrainingFolder, lap: Callable[[], None], progress: Progress) -> None:
    if progress.step % 50 == 0:
        lap()
    kept.report(progress)
