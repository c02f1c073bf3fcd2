"""How much of a labelled search's accuracy does imitation keep, with the labels hidden?

Three jobs: the demo's (`vgg_digits` on scattered digits at 0.25x, by its own recipe and the small effort), and
ResNet-20 and a quarter of VGG19 on CIFAR-10 reduced to 16 x 16 for ten epochs (`--epochs N`: for N), at both budgets by
the small effort. The original is trained with labels. Then it is all that is known: widths are found, and networks
trained, by imitation of it on the training images without labels, for as many epochs. Labels are read for the accuracy
on the test images alone. `--share 0.1` imitates on a tenth of the images for as many steps (their pixels are scaled by
their own mean and deviation, as of all data).

Each row is one `bcnet.search` in a run directory of its own below `--runs`: a study that was stopped goes on where it
was. The row "with labels" is the same search from the same original by its labels.

    python -m studies.imitation [--quick] [--network vgg_digits] [--seeds 5] [--first-seed 0] [--threads 1] [--share 1]
        [--epochs 10]
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import bcnet
from bcnet.data import load, split_validation
from bcnet.train import load_recipe
from studies.cifar.__main__ import DATA, EPOCHS, MIN_RATIO
from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT

RIVALS: Mapping[str, bcnet.Method] = {
    "uniform": bcnet.Uniform(),
    "balanced": bcnet.Balanced(),
    "magnitude": bcnet.Pruned("magnitude"),
}
LABELLED = "ours, with labels"


@dataclass(frozen=True)
class Job:
    """A network, its data, how it is trained, at which budgets, and by which search."""

    configuration: str
    data: str
    budgets: tuple[float, ...]
    ours: str
    method: bcnet.Trainings
    training: Mapping[str, Any] | None = None
    space: Mapping[str, Any] = field(default_factory=lambda: {"multiple_of": 1})
    image_size: int | None = None

    @property
    def methods(self) -> Mapping[str, bcnet.Method]:
        """The rivals, and the search without and with labels."""
        return {**RIVALS, self.ours: self.method, LABELLED: self.method}

    def of_epochs(self, epochs: int) -> Job:
        """Return the job with other epochs, which its configuration names."""
        configuration = re.sub(r"\d+ epochs", f"{epochs} epochs", self.configuration)
        return replace(self, configuration=configuration, training={**(self.training or {}), "epochs": epochs})


JOBS = {
    "resnet_digits": Job(
        *("resnet_digits at 8x8, 2 epochs", "digits", (0.5,), "ours, small effort"),
        bcnet.Trainings(effort="small"),
        training={"epochs": 2},
    ),
    "vgg_digits": Job(
        *("vgg_digits on scattered digits, 24 epochs", "scattered_digits", (0.25,), "ours, small effort"),
        bcnet.Trainings(effort="small"),
    ),
    **{
        network: Job(
            f"{network} at 16x16, ratios from {MIN_RATIO}, {EPOCHS} epochs",
            *(f"parquet:{DATA}", (0.25, 0.5), "ours, small effort"),
            bcnet.Trainings(effort="small"),
            training={"recipe": "resnet-cifar10", "epochs": EPOCHS, "precision": "fp32"},
            space={"min_ratio": MIN_RATIO, "multiple_of": 1},
            image_size=16,
        )
        for network in ("resnet20", "vgg19_quarter")
    },
}


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Two epochs on digits; writes results/quick_*.")] = False,
    network: Annotated[str, typer.Option(help="vgg_digits, resnet20 or vgg19_quarter.")] = "vgg_digits",
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 5,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    share: Annotated[float, typer.Option(help="Share of the training images that are imitated on.")] = 1.0,
    epochs: Annotated[int | None, typer.Option(help="Epochs of the original and of every other network.")] = None,
    runs: Annotated[Path | None, typer.Option(help="Where the run directories are.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the CSV file.")] = ROOT / "results",
) -> None:
    """Compute the rows that are missing."""
    name = "resnet_digits" if quick else network
    job = JOBS[name] if epochs is None else JOBS[name].of_epochs(epochs)
    configuration = job.configuration if share == 1 else f"{job.configuration}, {share:.0%} of the images"
    if job.image_size and not DATA.exists():
        raise SystemExit(f"skipped: CIFAR-10 is read from {DATA}, which is not there")
    with tempfile.TemporaryDirectory() as folder:
        place = runs or (Path(folder) if quick else Path("runs") / f"imitation-{name}{epochs or ''}")
        cells = [
            Cell(
                {"configuration": configuration, "seed": seed, "budget": budget, "method": method},
                lambda a=(name, seed, budget, method): _row(job, *a, threads, place, share),
            )
            for seed in range(first_seed, first_seed + (1 if quick else seeds))
            for budget in job.budgets
            for method in job.methods
            if share == 1 or method != LABELLED
        ]
        failed = run_cells(cells, out / ("quick_imitation.csv" if quick else "imitation.csv"), place / "logs")
    raise typer.Exit(bool(failed))


def _row(
    job: Job, network: str, seed: int, budget: float, method: str, threads: int, runs: Path, part: float
) -> dict[str, object]:
    shared: dict[str, Any] = {
        "training": job.training,
        "space": job.space,
        "options": {"threads": threads, "image_size": job.image_size},
        "seed": seed,
        "progress": False,
    }
    labelled = runs / f"{seed}-labelled"
    limit = bcnet.Budget(macs=budget)
    if not (labelled / "original.safetensors").exists():
        bcnet.search(network, job.data, limit, labelled, method=bcnet.Uniform(), start="original", **shared)
    data: str | bcnet.DataSet = job.data
    if part < 1:
        whole = load(job.data, image_size=job.image_size)
        data = replace(whole, train=split_validation(whole.train, part, seed=seed)[1])
        training = {"recipe": job.data, **(job.training or {})}
        recipe = load_recipe(training["recipe"])
        batch = min(recipe.batch_size, round(part * len(whole.train)) // 4)
        # As many steps as on all images.
        epochs = round(training.get("epochs", recipe.epochs) / part * batch / recipe.batch_size)
        shared["training"] = {**training, "epochs": epochs, "batch_size": batch, "label_smoothing": 0.0}
    kept = f"{seed}-{budget}-" if part == 1 else f"{seed}-{budget}-{part}-"
    place = runs / f"{kept}{method.replace(' ', '-').replace(',', '')}"
    start: dict[str, Any] = {"start": "original", "reuse": [labelled]}
    if method != LABELLED:
        others = [p for p in runs.glob(f"{kept}*") if (p / "original.safetensors").exists() and p != place]
        start = {"task": "imitation", "pretrained": labelled / "original.safetensors"}
        start["reuse"] = [p for p in others if not p.name.endswith("with-labels")]
    outcome = bcnet.search(
        network,
        data,
        limit,
        place,
        method=job.methods[method],
        **start,
        **shared,
    )
    assert outcome.result is not None, "the run is whole"
    networks = outcome.result.networks
    searched = networks["searched"]
    seconds, _ = bcnet.Run.open(place).search_cost
    return {
        "top1": round(searched.test["top1"], 3),
        "agreement": round(searched.test["agreement"], 3) if "agreement" in searched.test else "",
        "original_top1": round(networks["original"].test["top1"], 3),
        "macs_ratio": round(searched.macs_ratio, 4),
        "params": searched.params,
        "widths": " ".join(map(str, searched.widths)),
        "search_minutes": round(seconds / 60, 1),
        "threads": threads,
    }


if __name__ == "__main__":
    typer.run(main)
