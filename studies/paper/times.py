"""What the work of a study takes: estimated beforehand, and as its runs took.

A piece is a run directory: a supernet, a search on it, networks of random widths with the best of them trained to its
end, a network trained from scratch. It is estimated from multiply-adds and from what `python -m benchmarks.speed_gpu
--only "gpu training"` found for the network on the device at hand: images a second of training the supernet and the
full network, and of scoring. A network of a share of the multiply-adds is taken to train in that share of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import bcnet
from bcnet.machine import device_name
from bcnet.space import Widths
from bcnet.train import load_recipe
from studies.paper.jobs import METHODS, Job, budget_of
from studies.paper.networks import Network
from studies.paper.workshop import Workshop
from studies.shared.provenance import ROOT, rows

THROUGHPUT = ROOT / "benchmarks" / "results" / "speed.csv"
IMAGES = {"cifar10": 50_000, "digits": 1_438, "imagenet": 1_281_167}  # to train on
_FITTED = 0.8  # of them, for a supernet, and for random networks; a tenth scores candidates
_SCORED = 0.1
_FINISHED = {"supernet": "supernet.safetensors", "search": "rescored.json"}  # others end with a network


@dataclass(frozen=True)
class Speed:
    """Images a second, as the benchmark counts them: a step of the supernet shows each to four paths."""

    supernet: float
    full: float
    scoring: float


@dataclass(frozen=True)
class Piece:
    """A run of a job: where it is, None where its widths are not known yet, and how many seconds it may take."""

    what: str
    run: Path | None
    expected: float | None

    @property
    def taken(self) -> float | None:
        """Seconds that it took, None before it is finished."""
        if self.run is None or not (self.run / _FINISHED.get(self.what, "final.safetensors")).exists():
            return None
        return sum(bcnet.Run.open(self.run).seconds.values())


def pieces(job: Job, workshop: Workshop, widths: Widths | None, speed: Speed | None) -> Iterator[Piece]:
    """The runs that a job needs, in order; `widths` are what it came to, where it is finished."""
    network = workshop.scale.network(job.network)
    count = IMAGES[network.data]
    scale = workshop.scale
    if not METHODS[job.method].searches and job.method != "random":
        widths = METHODS[job.method].widths(job, workshop).widths  # known without any training
    share = 1.0 if job.budget is None else job.budget / job.network.macs
    if widths is not None:
        share = workshop.space(network).cost(widths).macs / network.macs
    if METHODS[job.method].searches:
        budget = budget_of(job, workshop)
        shown = scale.training_epochs(network, job.plan.training) * _FITTED * count
        yield Piece("supernet", workshop.supernet_run(network, job.plan, job.seed), speed and shown / speed.supernet)
        scored = scale.population * scale.searching_generations(job.plan.searching) * 2 * _SCORED * count
        run = workshop.search_run(network, budget, job.plan, job.seed)
        yield Piece("search", run, speed and scored / speed.scoring)
    if job.method == "random":
        epochs = min(scale.random_epochs, scale.final_epochs(network))
        shown = (scale.random_widths * epochs * _FITTED + scale.final_epochs(network) - epochs) * count
        run = workshop.random_run(network, budget_of(job, workshop), job.seed)
        yield Piece("random", run, speed and share * shown / speed.full)
    elif job.trained:
        distilled = METHODS[job.method].distilled
        there = None if widths is None else workshop.network_run(network, widths, job.seed, distilled=distilled)
        shown = scale.final_epochs(network) * count
        yield Piece("network", there, speed and share * shown / speed.full)


def speed_of(network: Network, device: str, table: Path = THROUGHPUT) -> Speed | None:
    """What the benchmark found for the network on this kind of device, in batches near the recipe's; None: nothing."""
    here = device_name("cpu") if device == "cpu" else torch.cuda.get_device_name(device)
    found = [
        row
        for row in rows(table)
        if (row["section"], row["network"]) == ("gpu training", network.model)
        and (row["cpu"].startswith(here) if device == "cpu" else row["cpu"].endswith(f", {here}"))
    ]
    if not found:
        return None
    wanted = load_recipe(network.recipe).batch_size
    nearest = min({row["configuration"] for row in found}, key=lambda c: abs(_batch(c) - wanted))
    figures = {
        row["figure"].partition(" (")[0]: float(row["value"]) for row in found if row["configuration"] == nearest
    }
    return Speed(figures["supernet training"], figures["full-width training"], figures["scoring"])


def _batch(configuration: str) -> int:
    """Of "batch 128 of 32x32"."""
    return int(configuration.split()[1])
