"""A supernet of ResNet-20 on CIFAR-10 at half resolution, and the scores of many candidates on every batch.

Everything is made once and kept below one folder; what was stopped goes on where it was:

    supernet.safetensors    the weights
    records.safetensors     the loss records of all steps
    <name>.safetensors      a matrix: widths (candidates, groups), and per side the right answers and the mean
                            cross-entropy of every batch (candidates, batches)
    seconds.json            time spent in training and scoring
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from bcnet.data import Batch, DataSet, TrainingBatches, fixed_batches, load, split_validation
from bcnet.files import read_tensors, write_atomic, write_tensors
from bcnet.models import create
from bcnet.space import Side, Widths, WidthSpace
from bcnet.supernet import Supernet
from bcnet.train import (
    Complementary,
    Cosine,
    LossRecords,
    Recipe,
    derived_seed,
)
from studies.shared.training import TrainingFolder

_SAVE_EVERY = 20  # candidates scored
Scores = tuple[np.ndarray, np.ndarray]
Known = dict[Widths, Scores]
_SIDES = (Side.LEFT, Side.RIGHT)


@dataclass(frozen=True)
class Training:
    """What is trained on what; the rates hold for the sum of a step's terms, as the loop adds them up."""

    network: str = "resnet20"
    image_size: int = 16
    epochs: int = 6
    batch_size: int = 96
    lr: float = 0.1
    weight_decay: float = 1e-4
    warmup_epochs: float = 0.25
    clip_norm: float = 5.0
    held_out: float = 0.1
    seed: int = 0

    @property
    def recipe(self) -> Recipe:
        """The recipe of the supernet."""
        return Recipe(
            lr=self.lr,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            epochs=self.epochs,
            schedule=Cosine(),
            warmup_epochs=self.warmup_epochs,
            clip_norm=self.clip_norm,
        )


@dataclass(frozen=True, eq=False)
class Matrix:
    """Scores of candidates on single batches, all of one size.

    `widths` is `(candidates, groups)`; `correct` and `loss` are `(candidates, sides, batches)`: right answers and mean
    cross-entropy, sides in the order LEFT, RIGHT.
    """

    widths: np.ndarray
    correct: np.ndarray
    loss: np.ndarray
    batch_size: int

    def scores(self, metric: str) -> np.ndarray:
        """Score of every candidate on every batch, the mean over both sides, `(candidates, batches)`."""
        if metric == "accuracy":
            return 100.0 * self.correct.mean(axis=1) / self.batch_size
        return -self.loss.mean(axis=1)


@dataclass(frozen=True)
class Laboratory:
    """The trained supernet and its data, in a folder of its own."""

    data: str
    training: Training
    folder: Path
    score_batch_size: int = 125

    @property
    def identity(self) -> dict[str, Any]:
        """What the files are marked with."""
        return {"data": self.data.rpartition("/")[2], **dataclasses.asdict(self.training)}

    @functools.cached_property
    def images(self) -> DataSet:
        """All images."""
        return load(self.data, image_size=self.training.image_size)

    @functools.cached_property
    def _split(self) -> tuple[Any, Any]:
        return split_validation(self.images.train, self.training.held_out)

    @functools.cache  # noqa: B019 - one per process
    def validation(self) -> list[Batch]:
        """The images held out, in equal batches."""
        return fixed_batches(self._split[1], self.score_batch_size, self.images.normaliser)

    def network(self) -> torch.nn.Module:
        """The network at full width, freshly initialised."""
        channels, size = self.images.image_shape[:2]
        torch.manual_seed(derived_seed(self.training.seed, "model"))
        spec = create(self.training.network, self.images.num_classes, in_channels=channels, image_size=size)
        return spec.build()

    def space(self, **options: Any) -> WidthSpace:
        """The network's width space."""
        return WidthSpace.trace(self.network(), torch.zeros(2, *self.images.image_shape), **options)

    @property
    def _training(self) -> TrainingFolder:
        return TrainingFolder(self.folder, self.identity)

    def records(self) -> LossRecords:
        """The losses of the training's steps."""
        self.supernet()
        return self._training.records

    def supernet(self) -> Supernet:
        """The trained supernet: read where it was trained before, and else trained from the newest checkpoint on."""
        supernet = Supernet(self.network(), self.space())
        kept = self._training
        if not kept.finished:
            batches = TrainingBatches(
                self._split[0], self.training.batch_size, self.images.normaliser, self.images.augmentation
            )
            with self._timed("training"):
                kept.train(supernet, Complementary(), batches, self.training.recipe, seed=self.training.seed)
        return kept.load(supernet)

    def matrix(self, name: str, candidates: Sequence[Widths]) -> Matrix:
        """The scores of `candidates`, those of earlier calls under the name not made again."""
        ask = self.asking(name)
        known = len(ask.known)
        chosen = [ask(widths) for widths in candidates]
        if len(ask.known) > known:
            self.store(name, ask.known)
        correct, loss = (np.array([pair[i] for pair in chosen]) for i in (0, 1))
        return Matrix(np.array(candidates), correct, loss, self.score_batch_size)

    def asking(self, name: str) -> Asking:
        """What gives the scores of single candidates, and keeps them under the name."""
        return Asking(self, name, self._stored(name))

    def store(self, name: str, known: Known) -> None:
        """Write the scores known under a name."""
        tensors = {
            "widths": torch.tensor(list(known)),
            "correct": torch.from_numpy(np.array([c for c, _ in known.values()])),
            "loss": torch.from_numpy(np.array([x for _, x in known.values()])),
        }
        write_tensors(self.folder / f"{name}.safetensors", tensors, self._matrix_identity)

    def _stored(self, name: str) -> Known:
        file = self.folder / f"{name}.safetensors"
        if not file.exists():
            return {}
        tensors, _ = read_tensors(file, self._matrix_identity)
        rows = zip(tensors["widths"].tolist(), tensors["correct"].numpy(), tensors["loss"].numpy(), strict=True)
        return {tuple(widths): (correct, loss) for widths, correct, loss in rows}

    @property
    def _matrix_identity(self) -> dict[str, Any]:
        return {**self.identity, "score_batch_size": self.score_batch_size}

    def seconds(self) -> dict[str, float]:
        """Time spent, over all resumes that ended."""
        file = self.folder / "seconds.json"
        return json.loads(file.read_text()) if file.exists() else {}

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.monotonic()
        before = self.seconds()
        yield
        spent = round(before.get(stage, 0.0) + time.monotonic() - start, 1)
        write_atomic(self.folder / "seconds.json", json.dumps({**before, stage: spent}).encode())


@dataclass(eq=False)
class Asking:
    """Scores of candidates on all batches: those known, and else from the supernet, written now and then."""

    lab: Laboratory
    name: str
    known: Known

    def __call__(self, widths: Widths) -> Scores:
        """Right answers and mean cross-entropy, `(sides, batches)` each."""
        if widths not in self.known:
            self.known[widths] = of_batches(*self._network, widths)
            if len(self.known) % _SAVE_EVERY == 0:
                self.lab.store(self.name, self.known)
                print(f"{self.name}: {len(self.known)} candidates", file=sys.stderr, flush=True)
        return self.known[widths]

    @functools.cached_property
    def _network(self) -> tuple[Supernet, list[Batch]]:
        return self.lab.supernet(), self.lab.validation()


@torch.inference_mode()
def of_batches(supernet: Supernet, batches: Sequence[Batch], widths: Widths) -> Scores:
    """Right answers and mean cross-entropy on every side of every batch, `(sides, batches)` each."""
    correct = np.zeros((len(_SIDES), len(batches)), dtype=np.int32)
    loss = np.zeros((len(_SIDES), len(batches)))
    for row, side in enumerate(_SIDES):
        for column, (images, labels) in enumerate(batches):
            logits = supernet(images, widths, side).float()  # (batch, classes)
            correct[row, column] = int((logits.argmax(dim=1) == labels).sum())
            loss[row, column] = float(functional.cross_entropy(logits, labels))
    return correct, loss
