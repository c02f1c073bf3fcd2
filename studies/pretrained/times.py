"""Milliseconds of torchcrepe's narrow networks, whose widths `pretrained.csv` has: rows of `pretrained_times.csv`.

Each network is written as `bcnet export` writes it and runs on one thread; the networks of an engine take turns.
Weights are not trained: times do not depend on them.

    python -m studies.pretrained.times [--network full] [--engine torch] [--rounds 30]
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from bcnet.errors import ExportError
from bcnet.space import WidthSpace
from studies.pretrained.__main__ import JOBS
from studies.shared.provenance import ROOT, append_row, finished, provenance, rows_of
from studies.shared.timing import timed_columns

ENGINES = ("torch", "onnxruntime", "mnn", "ncnn")


def main(
    network: Annotated[str, typer.Option(help="tiny or full.")] = "full",
    engines: Annotated[list[str] | None, typer.Option("--engine", help="Some engines; all by default.")] = None,
    rounds: Annotated[int, typer.Option(help="Times each network is timed.")] = 30,
    table: Annotated[Path, typer.Option(help="The widths.")] = ROOT / "results" / "pretrained.csv",
    out: Annotated[Path, typer.Option(help="The CSV file.")] = ROOT / "results" / "pretrained_times.csv",
) -> None:
    """Measure the engines that have no rows yet."""
    torch.set_num_threads(1)
    job = JOBS[network]
    model, inputs = job.make(), job.inputs(1, 0)
    space = WidthSpace.trace(model, inputs)
    chosen = {("original", "", "1"): space.full}
    for row in rows_of(table, {"configuration": job.configuration}):
        chosen[row["method"], row["seed"], row["budget"]] = tuple(map(int, row["widths"].split()))
    for engine in engines or ENGINES:
        if finished(out, {"network": job.network, "engine": engine}):
            continue
        try:
            for (method, seed, budget), columns in timed_columns(model, space, chosen, inputs, engine, rounds):
                row = {
                    "network": job.network,
                    "engine": engine,
                    "version": columns.pop("version"),
                    "method": method,
                    "budget": budget,
                    "seed": seed,
                }
                append_row(out, {**row, **columns, **provenance()})
        except ExportError as error:
            print(f"left out: {engine}: {error}")


if __name__ == "__main__":
    typer.run(main)
