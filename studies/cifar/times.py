"""Milliseconds of the networks of the table on small CIFAR-10, for the README's picture: rows of `cifar_times.csv`.

The original and what Uniform, Torch-Pruning, AutoSlim and the search found, each written as `bcnet export` writes it,
on one thread; the networks of an engine take turns. Weights are not trained: times do not depend on them.

    python -m studies.cifar.times [--quick] [--rounds 200]
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import torch
import typer

from bcnet.errors import ExportError
from bcnet.models import create
from bcnet.space import Widths, WidthSpace
from studies.cifar.picture import METHODS, TIMES
from studies.shared.provenance import ROOT, append_row, finished, provenance
from studies.shared.timing import timed_columns

TABLES = {"vgg19_quarter": "cifar_table.csv", "resnet20": "cifar_table_resnet20.csv"}
ENGINES = ("litert", "onnxruntime", "ncnn")
SIZE = 16


def main(
    quick: Annotated[bool, typer.Option("--quick", help="ResNet-20 on ONNX Runtime, few rounds.")] = False,
    rounds: Annotated[int, typer.Option(help="Times each network is timed.")] = 200,
    out: Annotated[Path, typer.Option(help="The CSV file.")] = TIMES,
) -> None:
    """Measure the engines that have no rows yet."""
    torch.set_num_threads(1)
    for name in ("resnet20",) if quick else TABLES:
        for engine in ("onnxruntime",) if quick else ENGINES:
            if finished(out, {"network": name, "engine": engine}):
                continue
            try:
                measure(name, engine, 4 if quick else rounds, out)
            except ExportError as error:
                print(f"left out: {name} on {engine}: {error}")


def networks(name: str) -> dict[tuple[str, float, int], Widths]:
    """Widths of a network's table by method, budget and seed."""
    with (ROOT / "results" / TABLES[name]).open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["start"] == "original" and row["method"] in METHODS]
    return {
        (row["method"], float(row["budget"]), int(row["seed"])): tuple(map(int, row["widths"].split())) for row in rows
    }


def measure(name: str, engine: str, rounds: int, out: Path) -> None:
    """Time the networks of one table on one engine."""
    model = create(name, num_classes=10, image_size=SIZE).build().eval()
    image = torch.rand(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    space = WidthSpace.trace(model, image, multiple_of=1)
    chosen = {("original", 1.0, 0): space.full, **networks(name)}
    for (method, budget, seed), columns in timed_columns(model, space, chosen, image, engine, rounds):
        row = {
            "network": name,
            "pixels": SIZE,
            "engine": engine,
            "version": columns.pop("version"),
            "method": method,
            "budget": budget,
            "seed": seed,
        }
        append_row(out, {**row, **columns, **provenance()})


if __name__ == "__main__":
    typer.run(main)
