"""Candidates trained at once, a CPU thread each, against one after the other: seconds of the same search's trainings.

    python -m benchmarks.side_by_side [--network resnet20] [--rounds 2]

Sixteen networks at a quarter of the multiply-adds are trained on a quarter of an epoch of CIFAR-10 at 16 x 16 pixels,
in three ways that alternate: one after the other on all cores, one after the other on one, and side by side. All start
from the same fresh weights, given as pretrained, so that nothing else is trained. Leave the machine idle meanwhile.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import bcnet
from bcnet.models import create
from studies.shared.provenance import ROOT, append_row, provenance

OUTPUT = ROOT / "benchmarks" / "results" / "side_by_side.csv"
DATA = ROOT.parent / "shared" / "data" / "cifar10"
NETWORKS = 16
EPOCHS = 0.25


def main(
    network: Annotated[str, typer.Option(help="vgg19_quarter or resnet20.")] = "resnet20",
    rounds: Annotated[int, typer.Option(help="How often each way is timed.")] = 2,
) -> None:
    """Append a row for each way and round."""
    if not DATA.exists():
        raise SystemExit(f"skipped: CIFAR-10 is read from {DATA}, which is not there")
    cores = os.cpu_count() or 1
    ways: dict[str, dict[str, Any]] = {
        "one after the other, all cores": {"threads": cores, "at_once": 1},
        "one after the other, one core": {"threads": 1, "at_once": 1},
        "side by side": {"threads": cores},
    }
    torch.manual_seed(0)
    model = create(network, num_classes=10, in_channels=3, image_size=16).build()
    for number in range(rounds):
        for way, options in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                seconds = _time_search(model, options, Path(folder))
            row = {"network": network, "candidates": NETWORKS, "epochs": EPOCHS, "way": way, "round": number}
            row |= {"seconds": round(seconds, 2), "torch": torch.__version__, **provenance()}
            append_row(OUTPUT, row)
            print(f"{network}, {way}: {seconds:.1f} s")


def _time_search(model: torch.nn.Module, options: dict[str, Any], folder: Path) -> float:
    bcnet.search(
        model,
        f"parquet:{DATA}",
        bcnet.Budget(macs=0.25),
        folder,
        method=bcnet.Trainings(networks=NETWORKS, epochs=EPOCHS),
        training={"recipe": "resnet-cifar10", "epochs": 2, "precision": "fp32"},
        start="pretrained",
        until="widths",
        options={"image_size": 16, **options},
        progress=False,
    )
    return bcnet.Run.open(folder).seconds["trials"]


if __name__ == "__main__":
    typer.run(main)
