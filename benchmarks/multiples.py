"""How fast widths in multiples are on the engines that people deploy on: rows of `results/multiples.csv`.

Uniform at half the multiply-adds with channels as they come, in the default multiples (of 8 from 64 channels on, of 4
from 16 on), and in multiples of 8 and 16, each as a share of the original's time on the same engine. The networks of an
engine take turns, on one thread, and run from the files that `bcnet export` writes. Engines that are not installed are
left out.

    python -m benchmarks.multiples [--quick] [--rounds 30]
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from bcnet.errors import ExportError
from bcnet.latency.engines import engine_of
from bcnet.machine.defaults import threads
from bcnet.machine.measure import median_and_noise, times
from bcnet.models import create
from bcnet.space import WidthSpace
from bcnet.supernet import build
from studies.shared.provenance import ROOT, append_row, finished, provenance
from studies.shared.torchvision_here import let_torchvision_import

OUTPUT = ROOT / "benchmarks" / "results" / "multiples.csv"
ENGINES = ("torch", "onnxruntime", "openvino", "litert", "ncnn", "mnn", "executorch")
NETWORKS = {"timm:mobilenetv2_100": 224, "resnet20": 32, "vgg19_quarter": 32}
MULTIPLES = (1, "fast", 8, 16)
BUDGET = 0.5


def main(
    quick: Annotated[bool, typer.Option("--quick", help="ResNet-20 on torch and ONNX Runtime, few rounds.")] = False,
    rounds: Annotated[int, typer.Option(help="Times each network is timed.")] = 30,
    out: Annotated[Path, typer.Option(help="The CSV file.")] = OUTPUT,
) -> None:
    """Measure the engines that have no rows yet."""
    torch.set_num_threads(1)
    let_torchvision_import()
    for name in ("resnet20",) if quick else NETWORKS:
        for engine in ENGINES[:2] if quick else ENGINES:
            if finished(out, {"network": name, "engine": engine}):
                continue
            try:
                measure(name, engine, 4 if quick else rounds, out)
            except ExportError as error:
                print(f"left out: {name} on {engine}: {error}")


def measure(name: str, engine: str, rounds: int, out: Path) -> None:
    """Time the original and Uniform in all multiples on one engine."""
    size = NETWORKS[name]
    model = create(name, image_size=size).build().eval()
    image = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    runs = engine_of(engine)
    spaces = {str(multiple): WidthSpace.trace(model, image, multiple_of=multiple) for multiple in MULTIPLES}
    chosen = {"original": spaces["1"].full}
    chosen |= {key: space.uniform(macs=BUDGET) for key, space in spaces.items()}
    with threads(1):
        calls = [runs.prepare(build(model, spaces["1"], widths).eval(), image, 1) for widths in chosen.values()]
        taken, noise = median_and_noise(times(calls, rounds))
    space = spaces["1"]
    for (key, widths), seconds, apart in zip(chosen.items(), taken, noise, strict=True):
        row = {
            "network": name,
            "pixels": size,
            "engine": engine,
            "version": runs.version,
            "multiple_of": key,
            "macs_ratio": round(space.cost(widths).macs / space.reference.macs, 4),
            "milliseconds": float(np.format_float_positional(1e3 * seconds, 4, fractional=False)),
            "share_of_original": round(float(seconds / taken[0]), 4),
            "noise": round(float(apart), 4),
            "rounds": rounds,
        }
        append_row(out, {**row, **provenance()})
        print(row)


if __name__ == "__main__":
    typer.run(main)
