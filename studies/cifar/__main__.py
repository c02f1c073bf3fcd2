"""The table of the README: every method at the same budgets, from the same trained original.

VGG19 of a quarter width, ResNet-20, or MobileNetV2 of a quarter width (on which nothing was tuned), on CIFAR-10 reduced
to 16 x 16. All networks keep the most important channels of the same original (pruned ones those that the pruner
chose) and are trained for ten epochs by one recipe; of one seed all see the same images in the same order. Widths are
chosen without the test images.

Each row is one `bcnet.search` in a run directory of its own below `--runs`: a study that was stopped goes on where it
was, and runs of one seed share their original. Rows go to `results/cifar_methods.csv`; the older `cifar_table*.csv`,
with other columns, are what the README quotes, methods that were dropped since among them (docs/dropped.md).

    python -m studies.cifar [--quick] [--network vgg19_quarter] [--budget 0.25] [--seeds 3] [--first-seed 0]
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import nn

import bcnet
from bcnet.models import mobilenetv2
from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT

DATA = ROOT.parent / "shared" / "data" / "cifar10"
NETWORKS = ("vgg19_quarter", "resnet20", "mobilenetv2_quarter")
EPOCHS = 10
SUPERNET_EPOCHS = 8
MIN_RATIO = 0.2
METHODS: Mapping[str, bcnet.Method] = {
    "uniform": bcnet.Uniform(),
    "balanced": bcnet.Balanced(),
    "random": bcnet.Random(20, epochs=1),
    "magnitude": bcnet.Pruned("magnitude"),
    "taylor": bcnet.Pruned("taylor"),
    "autoslim": bcnet.AutoSlim(epochs=SUPERNET_EPOCHS),
    "ours, on a supernet": bcnet.BCNet(epochs=SUPERNET_EPOCHS, population=40, generations=6),
    "ours, on a supernet from the original": bcnet.BCNet(start="trained", epochs=4, population=40, generations=6),
    "ours, small effort": bcnet.Trainings(effort="small"),
    "ours, medium effort": bcnet.Trainings(effort="medium"),
}
QUICK = ("uniform", "balanced", "ours, small effort")


def mobilenetv2_quarter() -> nn.Module:
    """MobileNetV2 with a quarter of its channels: 5.4M multiply-adds on 16x16 images."""
    return mobilenetv2(width_mult=0.25)


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Three methods on digits; writes results/quick_*.")] = False,
    network: Annotated[str, typer.Option(help=f"One of {', '.join(NETWORKS)}.")] = "vgg19_quarter",
    methods: Annotated[list[str] | None, typer.Option("--method", help="Some of the methods; all by default.")] = None,
    budgets: Annotated[list[float] | None, typer.Option("--budget", help="Shares of multiply-adds; 0.5, 0.25.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    runs: Annotated[Path | None, typer.Option(help="Where the run directories are.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the CSV file.")] = ROOT / "results",
) -> None:
    """Compute the rows that are missing."""
    if not quick and not DATA.exists():
        raise SystemExit(f"skipped: CIFAR-10 is read from {DATA}, which is not there")
    if network not in NETWORKS:
        raise SystemExit(f"--network takes {', '.join(NETWORKS)}; got {network}")
    if unknown := sorted({*(methods or ())} - {*METHODS}):
        raise SystemExit(f"--method takes {', '.join(METHODS)}; got {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        name = "resnet_digits" if quick else network
        place = runs or (Path(folder) if quick else Path("runs") / f"cifar-{name}")
        cells = [
            Cell(_key(name, seed, budget, method), lambda a=(name, seed, budget, method): _row(*a, threads, place))
            for seed in range(first_seed, first_seed + (1 if quick else seeds))
            for budget in ((0.5,) if quick else budgets or (0.5, 0.25))
            for method in (QUICK if quick else methods or METHODS)
        ]
        failed = run_cells(cells, out / ("quick_cifar.csv" if quick else "cifar_methods.csv"), place / "logs")
    raise typer.Exit(bool(failed))


def _key(network: str, seed: int, budget: float, method: str) -> dict[str, object]:
    size = "8x8, 2 epochs" if network == "resnet_digits" else f"16x16, ratios from {MIN_RATIO}, {EPOCHS} epochs"
    return {
        "configuration": f"{network} at {size}, supernet {SUPERNET_EPOCHS} epochs",
        "seed": seed,
        "budget": budget,
        "method": method,
        "start": "original",
    }


def _row(network: str, seed: int, budget: float, method: str, threads: int, runs: Path) -> dict[str, object]:
    quick = network == "resnet_digits"
    places = {name: runs / f"{seed}-{budget}-{name.replace(' ', '-').replace(',', '')}" for name in METHODS}
    others = [place for place in runs.glob(f"{seed}-*") if (place / "original.safetensors").exists()]
    options: dict[str, Any] = {"threads": threads} if quick else {"threads": threads, "image_size": 16}
    outcome = bcnet.search(
        mobilenetv2_quarter if network == "mobilenetv2_quarter" else network,
        "digits" if quick else f"parquet:{DATA}",
        bcnet.Budget(macs=budget),
        places[method],
        method=METHODS[method],
        training={"epochs": 2} if quick else {"recipe": "resnet-cifar10", "epochs": EPOCHS, "precision": "fp32"},
        start="original",
        space={"min_ratio": MIN_RATIO, "multiple_of": 1},
        seed=seed,
        reuse=[place for place in others if place != places[method]],
        options=options,
        progress=False,
    )
    assert outcome.result is not None, "the run is whole"
    searched = outcome.result.networks["searched"]
    seconds, trainings = bcnet.Run.open(places[method]).search_cost
    return {
        "top1": round(searched.test["top1"], 3),
        "original_top1": round(outcome.result.networks["original"].test["top1"], 3),
        "macs_ratio": round(searched.macs_ratio, 4),
        "params": searched.params,
        "widths": " ".join(map(str, searched.widths)),
        "search_minutes": round(seconds / 60, 1),
        "search_trainings": None if trainings is None else round(trainings, 2),
        "threads": threads,
    }


if __name__ == "__main__":
    typer.run(main)
