"""Supernet trainings of a few minutes on one core, for the loss records that a real training leaves.

BC with complement on CIFAR-10 images: SGD with Nesterov momentum, cosine to zero, one pass over as many images as the
steps take. A finished training is a file of records that is read again, a stopped one goes on from its checkpoint.
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bcnet.data import DataSet, TrainingBatches, load
from bcnet.models import create
from bcnet.space import WidthSpace
from bcnet.supernet import Supernet
from bcnet.train import Complementary, Cosine, LossRecords, Recipe
from studies.shared.provenance import ROOT
from studies.shared.training import TrainingFolder

CIFAR10 = ROOT.parent / "shared" / "data" / "cifar10"


@dataclass(frozen=True)
class ShortTraining:
    """What is trained and how; `image_size` is the side of the square that the images are resized to."""

    network: str
    image_size: int
    steps: int
    lr: float
    batch_size: int = 32
    num_choices: int = 20
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.steps} steps of {self.batch_size} images at {self.image_size}x{self.image_size}, lr {self.lr:g}"

    def records(self, folder: Path, data: Path = CIFAR10) -> LossRecords:
        """The records, trained into `folder` where they are not yet there."""
        kept = TrainingFolder(folder, self._identity)
        if not kept.finished:
            self._train(kept, data)
        return kept.records

    @property
    def _identity(self) -> dict[str, Any]:
        return {"training": asdict(self)}

    def _train(self, kept: TrainingFolder, data: Path) -> None:
        images = _images(data, self.image_size)
        torch.manual_seed(self.seed)
        spec = create(self.network, num_classes=images.num_classes)
        model = spec.build()
        space = WidthSpace.trace(model, torch.zeros(2, *spec.input_size), num_choices=self.num_choices, multiple_of=1)
        order = torch.randperm(len(images.train), generator=torch.Generator().manual_seed(self.seed))
        seen = images.train.subset(order[: self.steps * self.batch_size])
        batches = TrainingBatches(seen, self.batch_size, images.normaliser, images.augmentation)
        recipe = Recipe(lr=self.lr, batch_size=self.batch_size, epochs=1, schedule=Cosine(), clip_norm=5.0)
        kept.train(Supernet(model, space), Complementary(), batches, recipe, seed=self.seed)


@functools.cache
def _images(data: Path, image_size: int) -> DataSet:
    if not data.is_dir():
        raise SystemExit(f"the images {data} are not there: give a folder of CIFAR-10 as Parquet files")
    return load(f"parquet:{data}", image_size=image_size)
