"""How close does a narrow network come to its original by weights alone, and what is left of that after training?

The originals are those of `studies.spending`: trained on CIFAR-10 reduced to 16 x 16, with 10,000 training images held
out, of which one half judges here. Networks of the Uniform and the balanced widths take the original's most important
channels. Batch norm then gets new statistics of 2,560 training images, or the layers get weights by least squares on
1,024 of them (`bcnet.narrow(reconstruct=True)`). They are judged as they are, and after a short training. The test
images take no part.

    python -m studies.reconstruction [--quick] [--network vgg19_quarter] [--seeds 1] [--first-seed 0] [--threads 1]
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import nn

import bcnet
from bcnet.space import Widths
from bcnet.train import derived_generator
from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT
from studies.spending.__main__ import DATA, Job, loss_and_accuracy

STARTS = {"statistics": 20, "reconstructed": 8}  # batches of training images
EPOCHS = (0, 0.25, 1)


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Digits; writes results/quick_*.")] = False,
    network: Annotated[str, typer.Option(help="vgg19_quarter or resnet20.")] = "vgg19_quarter",
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 1,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    runs: Annotated[Path | None, typer.Option(help="Where originals are, those of studies.spending too.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the CSV file.")] = ROOT / "results",
) -> None:
    """Compute the rows that are missing."""
    if not quick and not DATA.exists():
        raise SystemExit(f"skipped: CIFAR-10 is read from {DATA}, which is not there")
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        name = "resnet_digits" if quick else network
        place = runs or (Path(folder) if quick else Path("runs") / f"spending-{name}")
        cells = []
        for seed in range(first_seed, first_seed + (1 if quick else seeds)):
            job = Job(name, seed, place)
            for budget in (0.5,) if quick else (0.5, 0.25):
                for widths in ("uniform", "balanced"):
                    for start in STARTS:
                        for epochs in EPOCHS[:2] if quick else EPOCHS:
                            key = {"network": name, "seed": seed, "budget": budget, "widths": widths}
                            key |= {"start": start, "epochs": epochs}
                            cells.append(Cell(key, partial(_row, job, budget, widths, start, epochs)))
        failed = run_cells(cells, out / ("quick_reconstruction.csv" if quick else "reconstruction.csv"), place / "logs")
    raise typer.Exit(bool(failed))


def _row(job: Job, budget: float, widths: str, start: str, epochs: float) -> dict[str, object]:
    space = job.owner[0]
    chosen = getattr(space, widths)(macs=budget)
    network, seconds = _start(job, chosen, start)
    if epochs:
        network = job.tune(network, epochs)
    loss, accuracy = loss_and_accuracy(network.eval(), job.parts[2])
    original = loss_and_accuracy(job.owner[1], job.parts[2])
    return {
        "loss": round(loss, 5),
        "accuracy": round(accuracy, 3),
        "original_loss": round(original[0], 5),
        "original_accuracy": round(original[1], 3),
        "start_seconds": round(seconds, 1),
        "macs_ratio": round(space.cost(chosen).macs / space.reference.macs, 4),
    }


def _start(job: Job, widths: Widths, start: str) -> tuple[nn.Module, float]:
    """Return the narrow network, and the seconds that its statistics or weights took."""
    space, ranked, _ = job.owner
    drawn = job.parts[0].epoch(derived_generator(job.seed, "calibration"))
    inputs = [x for (x, _), _ in zip(drawn, range(STARTS[start]), strict=False)]
    restored = start == "reconstructed"
    began = time.monotonic()
    network = bcnet.narrow(ranked, space, widths, weights="first", calibrate=inputs, reconstruct=restored)
    return network, time.monotonic() - began


if __name__ == "__main__":
    typer.run(main)
