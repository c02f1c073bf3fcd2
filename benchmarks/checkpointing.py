"""What saving the state costs: ResNet-20 on CIFAR-sized images, trained with checkpoints at the default pace.

    python -m benchmarks.checkpointing [--seconds 150]

Blocks of steps without and with checkpoints alternate, so that both meet the same machine. Two figures: the share of
the time of a block with checkpoints that was spent in saving, by the clock around each save, and the time of a save in
steps of the block without. The first is the cost. For any network it stays below 2 %, since the pause before the next
save is at least 50 times what the last one took.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from bcnet.models import resnet20
from bcnet.train import CHECKPOINT_SECONDS, Checkpoints, NetworkLearner, Recipe, train
from bcnet.train.saving import Saver
from studies.shared.provenance import ROOT, append_row, provenance

OUTPUT = ROOT / "benchmarks" / "results" / "checkpointing.csv"
BATCH = 128
STEPS = 1_000_000


class Batches:
    """Random images; `stop` ends the epoch."""

    def __init__(self) -> None:
        self.deadline = 0.0
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(BATCH, 3, 32, 32, generator=generator).contiguous(memory_format=torch.channels_last)
        self.batch = (images, torch.randint(10, (BATCH,), generator=generator))

    def __len__(self) -> int:
        return STEPS

    def epoch(self, generator: torch.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while time.perf_counter() < self.deadline:
            yield self.batch


def block(seconds: float, checkpoints: Checkpoints | None) -> tuple[int, float, list[float]]:
    """Steps, seconds, and the seconds of each save."""
    torch.manual_seed(0)
    batches = Batches()
    learner = NetworkLearner(resnet20().to(memory_format=torch.channels_last))
    saves: list[float] = []
    steps = 0

    def counted(*_: object) -> None:
        nonlocal steps
        steps += 1

    def timed(saver: Saver, *state: Any) -> None:
        start = time.perf_counter()
        plain_save(saver, *state)
        saves.append(time.perf_counter() - start)

    plain_save = Saver.save
    Saver.save = timed  # type: ignore[method-assign]
    recipe = Recipe(lr=0.1, batch_size=BATCH, epochs=1, precision="fp32")
    start = time.perf_counter()
    batches.deadline = start + seconds
    try:
        train(learner, batches, recipe, seed=0, checkpoints=checkpoints, on_step=counted)
    finally:
        Saver.save = plain_save  # type: ignore[method-assign]
    return steps, time.perf_counter() - start, saves


def main(
    seconds: Annotated[float, typer.Option(help="Length of a block with checkpoints.")] = 150.0,
    rounds: Annotated[int, typer.Option(help="Pairs of blocks.")] = 2,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
) -> None:
    """Time pairs of blocks, and write a row for each."""
    torch.set_num_threads(threads)
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            plain_steps, plain_seconds, _ = block(seconds / 5, None)
            where = Checkpoints(Path(folder) / "c.safetensors", {"run": "benchmark"})
            steps, total, saves = block(seconds, where)
            size = where.path.stat().st_size if where.path.exists() else 0
        step = plain_seconds / plain_steps
        row = {
            "configuration": f"resnet20, batch {BATCH} of 32x32, fp32, every {CHECKPOINT_SECONDS:g} s",
            "threads": threads,
            "round": number,
            "step_seconds": round(step, 4),
            "step_seconds_with": round((total - sum(saves)) / steps, 4),
            "saves": len(saves),
            "save_seconds": round(sum(saves) / max(len(saves), 1), 4),
            "save_in_steps": round(sum(saves) / max(len(saves), 1) / step, 3),
            "file_bytes": size,
            "share_of_time": round(sum(saves) / total, 6),
            "torch": torch.__version__,
        }
        print(row, flush=True)
        append_row(OUTPUT, row | provenance())


if __name__ == "__main__":
    typer.run(main)
