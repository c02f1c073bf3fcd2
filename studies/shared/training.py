"""A supernet trained into a folder by the public training loop, for studies whose training is none of a run's settings.

`bcnet.search` trains by the settings of a run. Studies that compare strategies at an equal number of paths, or
train for so many steps and no validation images, call `bcnet.train.train` themselves. What is trained is kept:

    supernet.safetensors    the weights
    records.safetensors     the loss records of all steps
    checkpoint.safetensors  the state of a training that was stopped; gone once it has ended
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bcnet.data import TrainingBatches
from bcnet.files import make_folder, read_tensors, write_tensors
from bcnet.supernet import Supernet
from bcnet.train import Checkpoints, LossRecords, Progress, Recipe, Strategy, SupernetLearner, train


@dataclass(frozen=True)
class TrainingFolder:
    """Where a training is kept; its files are marked with `identity`, and read with the same one only."""

    path: Path
    identity: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        """Whether the training has ended."""
        return (self.path / "supernet.safetensors").exists()

    @property
    def records(self) -> LossRecords:
        """The loss records of a finished training."""
        return LossRecords.load(self.path / "records.safetensors", self.identity)

    def train(
        self,
        supernet: Supernet,
        strategy: Strategy,
        batches: TrainingBatches,
        recipe: Recipe,
        *,
        seed: int | str,
        on_step: Callable[[Progress], None] | None = None,
    ) -> None:
        """Train `supernet`, from the newest checkpoint on, and keep it; nothing where that is done."""
        if self.finished:
            return
        make_folder(self.path)
        records = train(
            SupernetLearner(supernet, strategy),
            batches,
            recipe,
            seed=seed,
            stage="supernet",
            checkpoints=Checkpoints(self.path / "checkpoint.safetensors", self.identity),
            on_step=on_step or self.report,
        )
        records.save(self.path / "records.safetensors", self.identity)
        write_tensors(self.path / "supernet.safetensors", supernet.state_dict(), self.identity)
        for file in self.path.glob("checkpoint*"):
            file.unlink()

    def load(self, supernet: Supernet) -> Supernet:
        """`supernet` with the trained weights, in eval mode."""
        supernet.load_state_dict(read_tensors(self.path / "supernet.safetensors", self.identity)[0])
        return supernet.eval()

    def report(self, progress: Progress) -> None:
        """Tell of every fiftieth step."""
        if progress.step % 50 == 0 or progress.step == progress.total:
            line = f"{self.path.name}: step {progress.step}/{progress.total}, loss {progress.loss:.3f}"
            print(line, file=sys.stderr, flush=True)
