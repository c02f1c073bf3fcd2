"""How much of a labelled search's accuracy does imitation keep, with the labels hidden?

ResNet-20 on CIFAR-10 reduced to 16 x 16, as in `studies.cifar`: the original is trained with labels for ten epochs.
Then it is all that is known. Widths are found, and networks trained, by imitation of it on the training images (or a
share of them) without labels, for as many epochs. Labels are read for the accuracy on the test images alone.

Each row is one `bcnet.search` in a run directory of its own below `--runs`: a study that was stopped goes on where it
was. The rows to compare with, of labelled searches from the same kind of original, are in
`results/cifar_table_resnet20.csv` ("start" original).

    python -m studies.imitation [--quick] [--seeds 3] [--first-seed 0] [--threads 1]
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import bcnet
from studies.cifar.__main__ import DATA, EPOCHS, MIN_RATIO
from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT

METHODS: Mapping[str, bcnet.Method] = {
    "uniform": bcnet.Uniform(),
    "balanced": bcnet.Balanced(),
    "taylor": bcnet.Pruned("taylor"),
    "ours, small effort": bcnet.Trainings(effort="small"),
}
QUICK = ("uniform", "ours, small effort")


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Two methods on digits; writes results/quick_*.")] = False,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    runs: Annotated[Path | None, typer.Option(help="Where the run directories are.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the CSV file.")] = ROOT / "results",
) -> None:
    """Compute the rows that are missing."""
    if not quick and not DATA.exists():
        raise SystemExit(f"skipped: CIFAR-10 is read from {DATA}, which is not there")
    with tempfile.TemporaryDirectory() as folder:
        place = runs or (Path(folder) if quick else Path("runs") / "imitation")
        cells = [
            Cell(_key(quick, seed, budget, method), lambda a=(quick, seed, budget, method): _row(*a, threads, place))
            for seed in range(first_seed, first_seed + (1 if quick else seeds))
            for budget in ((0.5,) if quick else (0.25, 0.5))
            for method in (QUICK if quick else METHODS)
        ]
        failed = run_cells(cells, out / ("quick_imitation.csv" if quick else "imitation.csv"), place / "logs")
    raise typer.Exit(bool(failed))


def _key(quick: bool, seed: int, budget: float, method: str) -> dict[str, object]:
    size = "resnet_digits at 8x8, 2 epochs" if quick else f"resnet20 at 16x16, ratios from {MIN_RATIO}, {EPOCHS} epochs"
    return {"configuration": size, "seed": seed, "budget": budget, "method": method}


def _row(quick: bool, seed: int, budget: float, method: str, threads: int, runs: Path) -> dict[str, object]:
    network, data = ("resnet_digits", "digits") if quick else ("resnet20", f"parquet:{DATA}")
    shared: dict[str, Any] = {
        "training": {"epochs": 2} if quick else {"recipe": "resnet-cifar10", "epochs": EPOCHS, "precision": "fp32"},
        "space": {"min_ratio": MIN_RATIO},
        "options": {"threads": threads} if quick else {"threads": threads, "image_size": 16},
        "seed": seed,
        "progress": False,
    }
    labelled = runs / f"{seed}-labelled"
    bcnet.search(network, data, bcnet.Budget(macs=0.5), labelled, method=bcnet.Uniform(), start="original", **shared)
    place = runs / f"{seed}-{budget}-{method.replace(' ', '-').replace(',', '')}"
    others = [p for p in runs.glob(f"{seed}-{budget}-*") if (p / "original.safetensors").exists() and p != place]
    outcome = bcnet.search(
        network,
        data,
        bcnet.Budget(macs=budget),
        place,
        method=METHODS[method],
        task="imitation",
        pretrained=labelled / "original.safetensors",
        reuse=others,
        **shared,
    )
    assert outcome.result is not None, "the run is whole"
    searched = outcome.result["networks"]["searched"]
    seconds, _ = bcnet.Run.open(place).search_cost
    return {
        "top1": round(searched["test"]["top1"], 3),
        "agreement": round(searched["test"]["agreement"], 3),
        "original_top1": round(outcome.result["networks"]["original"]["test"]["top1"], 3),
        "macs_ratio": round(searched["macs_ratio"], 4),
        "params": searched["params"],
        "widths": " ".join(map(str, searched["widths"])),
        "search_minutes": round(seconds / 60, 1),
        "threads": threads,
    }


if __name__ == "__main__":
    typer.run(main)
