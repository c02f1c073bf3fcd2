"""Keywords on a microcontroller: networks for spoken digits within 64 KiB of arena and of flash, and less, in int8.

A search narrows the DS-CNN of `studies.keywords.sounds` to the arena that tflite-micro may take and the bytes that the
file may. The networks found, and the original, are exported as int8 files, loaded by tflite-micro and tested in it:
the accuracy is that of the very file. `arena` and `flash` are what was predicted before any training, `arena_told` what
tflite-micro says of the file, `file_bytes` its length. The recordings are read from `../shared/data/spoken_digits`.

    python -m studies.keywords [--quick] [--seeds 3] [--first-seed 0] [--threads 1]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from torch import nn

import bcnet
from bcnet.export import FinishedRun, RealInputs
from bcnet.tflite import Converter, LiteRtFile, LiteRtInt8, is_installed
from studies.keywords.sounds import DepthwiseSeparable, loaders
from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT

DATA = ROOT.parent / "shared" / "data" / "spoken_digits"
Which = Literal["original", "searched"]
BUDGETS = {"64 KiB, 64 KiB": ("64 KiB", "64 KiB"), "24 KiB, 32 KiB": ("24 KiB", "32 KiB")}  # arena, flash
QUICK = {"6 KiB, 9 KiB": ("6 KiB", "9 KiB")}
EPOCHS = 30
METHODS = {
    "uniform": bcnet.Uniform(),
    "balanced": bcnet.Balanced(),
    "ours, small effort": bcnet.Trainings(effort="small"),
}


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A small network, 6 epochs; writes results/quick_*.")] = False,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    runs: Annotated[Path | None, typer.Option(help="Where the run directories are.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the CSV file.")] = ROOT / "results",
) -> None:
    """Compute the rows that are missing."""
    if not DATA.exists():
        raise SystemExit(f"skipped: spoken digits are read from {DATA}, which is not there")
    if not is_installed():
        raise SystemExit("skipped: TFLite files are made by litert-torch, which is not installed (bcnet[litert])")
    with tempfile.TemporaryDirectory() as folder:
        place = runs or (Path(folder) if quick else Path("runs") / "keywords")
        configuration = "DS-CNN, 16 channels, 6 epochs" if quick else f"DS-CNN, 172 channels, {EPOCHS} epochs"
        cells = [
            Cell(
                {"configuration": configuration, "seed": seed, "budget": budget, "method": method},
                lambda a=(seed, budget, method): _row(*a, quick=quick, threads=threads, runs=place),
            )
            for seed in range(first_seed, first_seed + (1 if quick else seeds))
            for budget in (QUICK if quick else BUDGETS)
            for method in ("original", "uniform", *(() if quick else ("balanced", "ours, small effort")))
        ]
        failed = run_cells(cells, out / ("quick_keywords.csv" if quick else "keywords.csv"), place / "logs")
    raise typer.Exit(bool(failed))


def _network() -> DepthwiseSeparable:
    return DepthwiseSeparable()


def _small_network() -> DepthwiseSeparable:
    return DepthwiseSeparable(channels=16, blocks=1)


def _row(seed: int, budget: str, method: str, *, quick: bool, threads: int, runs: Path) -> dict[str, object]:
    factory = _small_network if quick else _network
    data = loaders(DATA, 20 if quick else None)
    searched = method if method != "original" else "uniform"
    arena, flash = {**BUDGETS, **QUICK}[budget]
    place = runs / f"{seed}-{budget}-{searched}".replace(",", "").replace(" ", "-")
    others = [p for p in runs.glob(f"{seed}-*") if (p / "original.safetensors").exists() and p != place]
    outcome = bcnet.search(
        factory,
        data,
        bcnet.Budget(arena=arena, flash=flash),
        place,
        method=METHODS[searched],
        epochs=6 if quick else EPOCHS,
        start="original",
        options={"threads": threads},
        reuse=others,
        seed=seed,
        progress=False,
    )
    assert outcome.result is not None, "the run is whole"
    which: Which = "original" if method == "original" else "searched"
    network = outcome.result.networks[which]
    content, tests, told = _file(place, factory, data, which)
    seconds, _ = bcnet.Run.open(place).search_cost
    return {
        "top1_pytorch": round(tests["PyTorch"], 3),
        "top1_litert": round(tests["LiteRT"], 3),
        "top1_tflite_micro": round(tests["tflite-micro"], 3),
        "arena": int(network.others["arena"]),
        "arena_told": told,
        "flash": int(network.others["flash"]),
        "file_bytes": len(content),
        "macs_ratio": round(network.macs_ratio, 4),
        "params": network.params,
        "widths": " ".join(map(str, network.widths)),
        "search_minutes": round(seconds / 60, 1),
        "threads": threads,
    }


def _file(
    place: Path, factory: Callable[[], nn.Module], data: Any, which: Which
) -> tuple[bytes, dict[str, float], int]:
    """Return a network's int8 file, the share of the test data that each engine classifies right, and its arena."""
    finished = FinishedRun.read(place, factory)
    network = finished.network(which)
    real = RealInputs.of(finished, data, False)
    example = real.samples[0]
    content = LiteRtInt8(real.samples).write(network, example, {}, opened="nothing")
    file = LiteRtFile(content)
    real.difference(network, file)
    tests = real.tests(network, file)
    images, targets = map(torch.cat, zip(*data[2], strict=True))
    with Converter() as converter:
        told = converter.describe(content)["arena"]["total"]
        (stored,) = file.to_stored(images)
        outputs = file.to_real(converter.run_micro(content, [stored[:, None]]))
    right = outputs.reshape(len(targets), -1).argmax(1) == targets.numpy()
    return content, {"PyTorch": tests["PyTorch"], "LiteRT": tests["file"], "tflite-micro": 100 * right.mean()}, told


if __name__ == "__main__":
    typer.run(main)
