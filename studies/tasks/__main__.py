"""Tasks other than classification, each from data to report: does the search hold its own there as well?

`segment`: three handwritten digits over a patch of a photograph, a class for every pixel, by a U-Net; mIoU. `detect`:
the same with boxes, by a CenterNet; COCO's AP. `denoise`: patches with Gaussian noise of 25 grey levels, by a DnCNN;
PSNR. `double`: patches at half size, by an ESPCN; PSNR. `add`: the sum of two digits, by a network with two inputs;
top-1. `listen`: which of nine men says /ae/, by convolutions along time; top-1. Each is searched at half and a quarter
of the multiply-adds and trained from scratch by one recipe, beside the original, the Uniform and the balanced network
of that budget. Widths are chosen on held-out patches of other parts of the photographs, or other digits and recordings,
than those that train and test.

    python -m studies.tasks [segment|detect|denoise|double|add|listen ...] [--quick] [--seeds 2]

writes a row for each network into `results/tasks.csv`; what is finished is not computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

import bcnet
from bcnet.tasks import Classification, DenseRegression, Detection, Segmentation
from studies.shared.choices import check_known
from studies.shared.provenance import ROOT, append_row, finished, provenance
from studies.tasks.networks import Adder, Denoiser, Detector, Doubler, Listener, UNet
from studies.tasks.pictures import boxed, halved, loaders, noisy, pairs, scenes, vowels

OUT = ROOT / "results" / "tasks.csv"
RUNS = ROOT / "runs" / "tasks"
BUDGETS = (0.5, 0.25)
SMALLEST = 0.1  # of a layer's width


@dataclass(frozen=True)
class Job:
    """A task with its network, its pictures, how long to train, and how many train, score and test."""

    task: bcnet.Task
    network: Callable[[], nn.Module]
    pictures: Callable[..., Any]
    epochs: int
    counts: tuple[int, int, int] = (4000, 1000, 1000)
    items: str = "patches"


JOBS = {
    "segment": Job(Segmentation(classes=11, dice=0.5), UNet, scenes, 12),
    "detect": Job(Detection(classes=10, height=32, width=32, most=10), Detector, boxed, 12),
    "denoise": Job(DenseRegression(), Denoiser, noisy, 8),
    "double": Job(DenseRegression(), Doubler, halved, 8),
    "add": Job(Classification(), Adder, pairs, 12, items="pairs"),
    "listen": Job(Classification(), Listener, vowels, 40, (180, 90, 370), "recordings"),
}


def main(
    which: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(JOBS)}; all where left out.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One epoch of few pictures, half the MACs.")] = False,
    seeds: Annotated[int, typer.Option(help="How many.")] = 2,
    threads: Annotated[int, typer.Option(help="Of every run.")] = 1,
    runs: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Run what is not finished."""
    check_known("a task", which or (), tuple(JOBS))
    for seed in range(1 if quick else seeds):
        for name in which or JOBS:
            for budget in BUDGETS[:1] if quick else BUDGETS:
                _rows(name, seed, budget, quick, threads, runs, out)


def _rows(name: str, seed: int, budget: float, quick: bool, threads: int, runs: Path, out: Path) -> None:
    job = JOBS[name]
    epochs, counts, candidates = (1, (96, 64, 64), 8) if quick else (job.epochs, job.counts, 240)
    key = {
        "configuration": f"{job.network.__name__}, {counts[0]} {job.items}, {epochs} epochs, {candidates} candidates",
        "task": name,
        "seed": str(seed),
        "budget": str(budget),
    }
    if finished(out, {**key, "network": "balanced"}):
        return
    data = loaders(job.pictures, counts, name)
    common: dict[str, Any] = {
        "budget": bcnet.Budget(macs=budget),
        "training": bcnet.Recipe(lr=0.05, batch_size=32, epochs=epochs),
        "task": job.task,
        "seed": seed,
        "options": {"threads": threads},
        "space": {"min_ratio": SMALLEST, "multiple_of": 1},
        "start": "scratch",
        "progress": False,
    }
    size = {"population": candidates // 6 or 1, "generations": 6} if not quick else {"population": 4, "generations": 2}
    folder = runs / f"{name}-{seed}-{budget}"
    outcome = bcnet.search(job.network, data, run_dir=folder, method=bcnet.BCNet(**size), **common)
    balanced = bcnet.search(
        job.network, data, run_dir=f"{folder}-balanced", method=bcnet.Balanced(), reuse=[folder], **common
    )
    found = {label: (outcome, network) for label, network in outcome.result.networks.items()}
    found["balanced"] = (balanced, balanced.result.networks["searched"])
    headline = job.task.headline
    for label, (run, network) in found.items():
        row = {
            **key,
            "network": label,
            "metric": headline.column,
            "value": round(network.test[headline.key], 3),
            "standard_error": round(network.test_errors[headline.key], 3),
            "macs_ratio": round(network.macs_ratio, 4),
            "params": network.params,
            "widths": " ".join(map(str, network.widths)),
            "seconds": round(sum(run.result.seconds.values()), 1),
            **provenance(run.result.versions["commit"]),
        }
        print(row)
        if not finished(out, {**key, "network": label}):
            append_row(out, row)


if __name__ == "__main__":
    torch.set_num_threads(1)
    typer.run(main)
