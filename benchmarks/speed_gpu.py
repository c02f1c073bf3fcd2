"""How fast bcnet is on a GPU: every figure a ratio in one run, in pieces of ten minutes that go on where they stopped.

    python -m benchmarks.speed_gpu [--minutes 9] [--only "gpu steps"] [--device cuda]

For each network and batch: a training step beside the full network's, four standalone networks and masks; the share of
it that the GPU waits for its host, and its memory; scoring beside inference; what could make steps faster
(`speed_tries`); whole trainings. What has a goal comes first: VGG19 in batches of 512. Rows go to
`benchmarks/results/speed.csv`; cells that it has are not measured again, and no cell begins once the minutes are over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks import speed_scoring, speed_steps, speed_training, speed_tries, speed_waiting
from benchmarks.speed import END, OUTPUT, Cell, measured
from benchmarks.speed_turns import Pace
from benchmarks.speed_workloads import Workload
from studies.shared.provenance import finished
from studies.shared.torchvision_here import let_torchvision_import

NETWORKS = (("vgg19", 32), ("resnet20", 32), ("mobilenetv2", 32), ("torchvision:resnet50", 224))
BATCHES = (512, 128, 256, 1024)
QUICK = Workload("resnet_digits", 8, 4)


def cells(device: str) -> Iterator[Cell]:
    """All networks in one batch size, then in the next."""
    for batch in BATCHES:
        for network, pixels in NETWORKS:
            yield from of_workload(Workload(network, pixels, batch, device), Pace(15, 5), epochs=4)


def of_workload(work: Workload, pace: Pace, *, epochs: int, compile_with: str = "inductor") -> Iterator[Cell]:
    """The cells of one network and batch."""
    sections = {
        "gpu steps": partial(speed_steps.figures, work, pace),
        "gpu waiting": partial(speed_waiting.figures, work, pace),
        "gpu scoring": partial(speed_scoring.figures, work, 4, pace),
        "gpu tries": partial(speed_tries.figures, work, pace, compile_with=compile_with),
        "gpu training": partial(speed_training.figures, work, work.batch, epochs, pace),
    }
    for section, figures in sections.items():
        if section != "gpu waiting" or work.device != "cpu":
            yield Cell(section, work.network, str(work), figures, work.device)


def main(
    device: Annotated[str, typer.Option(help="A GPU, or cpu to see that everything runs.")] = "cuda",
    minutes: Annotated[float, typer.Option(help="No cell begins after so many.")] = 9.0,
    quick: Annotated[bool, typer.Option(help="A tiny network, two rounds: whether everything runs.")] = False,
    only: Annotated[str | None, typer.Option(help="One section.")] = None,
    out: Annotated[Path, typer.Option(help="CSV to append to; finished cells are left out.")] = OUTPUT,
) -> None:
    """Measure what is not in the file yet."""
    if device != "cpu" and not torch.cuda.is_available():
        raise typer.BadParameter(f"there is no GPU here that torch {torch.__version__} sees; --device cpu --quick runs")
    let_torchvision_import()
    torch.manual_seed(0)
    end = time.monotonic() + 60 * minutes
    small = Workload(QUICK.network, QUICK.pixels, QUICK.batch, device)
    wanted = of_workload(small, Pace(0, 2, 2), epochs=1, compile_with="eager") if quick else cells(device)
    waiting = [
        cell
        for cell in wanted
        if only in (None, cell.section)
        and not finished(out, cell.key | {"figure": END, "threads": str(torch.get_num_threads())})
    ]
    for number, cell in enumerate(waiting):
        if time.monotonic() > end:
            print(f"{len(waiting) - number} cells are left: the same command goes on with them", flush=True)
            break
        try:
            measured(cell, out)
        except torch.cuda.OutOfMemoryError:
            print(*cell.key.values(), "|", "needs more memory than this GPU has", sep="  ", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    typer.run(main)
