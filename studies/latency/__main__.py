"""How well is the latency of a network predicted that was never measured, and do searches keep to such a budget?

`model`: calibrate each network on an engine, then time forty networks that took no part: twenty of one ratio with noise
around it, as calibration draws them, and twenty of independent uniform choices, which it never draws. Median and 90 %
quantile of the relative error and Kendall's tau, each beside those of an affine function of the multiply-adds that is
fitted to those forty networks themselves; and what the calibration took.

`budgets`: searches under a ratio of the original's latency, each with a calibration of its own. Scores are those of a
formula, since how good the widths are does not matter here: the sum over groups of the logarithm of the width, with
random weights of each seed, so that winners differ. The winner, the Uniform network and the original are then timed
again, in turns, by a process that knows nothing of the search. Supernets, which give the prior, see noise for an epoch.

Finished cells are rows of the CSVs and are never computed again.

    python -m studies.latency model|budgets [--quick]
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from scipy.stats import kendalltau

import bcnet
from bcnet.costs import Latency
from bcnet.data import Augmentation, Images
from bcnet.errors import BudgetError
from bcnet.latency import draws, engine_of, engine_times, measured
from bcnet.models import create
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.supernet import build
from studies.shared.provenance import ROOT, append_row, finished, provenance

RESULTS = ROOT / "results"
NETWORKS = ("resnet20", "mobilenetv2", "vgg19")
ENGINES = ("onnxruntime", "torch")
THREADS = (1, 2)
RATIOS = (0.3, 0.5, 0.7)
SEEDS = 3
UNSEEN = 40
app = typer.Typer(add_completion=False)
Quick = Annotated[bool, typer.Option(help="One cell, to see that everything runs.")]
Out = Annotated[Path, typer.Option(help="Folder of the CSVs.")]


def subject(name: str) -> tuple[torch.nn.Module, torch.Tensor, WidthSpace]:
    """A network for ten classes, one input, and its space."""
    spec = create(name, 10)
    network, image = spec.build(), torch.rand(1, *spec.input_size, generator=torch.Generator().manual_seed(0))
    return network, image, WidthSpace.trace(network, image)


def milliseconds(name: str, latency: Latency, widths: list[Widths]) -> np.ndarray:
    """What networks take, timed in turns, `(networks,)`."""
    network, image, space = subject(name)
    times = engine_times(engine_of(latency.engine), lambda w: build(network, space, w), image, latency.threads)
    return np.array([m.nanoseconds / 1e6 for m in measured(times, widths, latency.threads)])


@app.command()
def model(quick: Quick = False, out: Out = RESULTS) -> None:
    """Errors on networks that the calibration has not seen."""
    cells = [(n, e, t) for e in ENGINES for t in THREADS for n in NETWORKS]
    for name, engine, threads in cells[:1] if quick else cells:
        key = {"network": name, "engine": engine, "threads": str(threads)}
        if finished(out / "latency_model.csv", key):
            continue
        network, image, space = subject(name)
        began = time.monotonic()
        try:
            latency = bcnet.calibrate(network, image, latency=Latency(engine, threads))  # type: ignore[arg-type]
        except BudgetError as error:
            print(f"{key}: {error}", flush=True)  # the same command tries again
            continue
        seconds = time.monotonic() - began
        fitted = latency.model
        assert fitted is not None
        count = 6 if quick else UNSEEN
        like, generator = draws(space, seed=1), torch.Generator().manual_seed(2)
        widths = [w for _, w in zip(range(count // 2 + 2), like, strict=False)][2:]
        widths = [space.original_widths, *widths, *(space.sample(generator) for _ in range(count // 2))]
        taken = milliseconds(name, latency, widths)
        array = np.array(widths)
        paced = taken * fitted.original / 1e6 / taken[0]  # the machine may be faster now, or slower, as a whole
        predicted = fitted.predicted(array) / 1e6
        macs = np.array(space.cost(array).macs, dtype=np.float64)
        affine = np.polyval(np.polyfit(macs, paced, 1, w=1 / paced), macs)  # fitted to these very networks
        row = {**key, "calibrated_on": fitted.count, "calibration_seconds": round(seconds, 1), "form": fitted.form}
        row |= {"original_ms": round(float(taken[0]), 4), "unseen": count}
        for label, guess in (("model", predicted), ("macs", affine)):
            errors = np.abs(guess[1:] / paced[1:] - 1)
            row |= {
                f"{label}_median_error": round(float(np.median(errors)), 4),
                f"{label}_90_error": round(float(np.quantile(errors, 0.9)), 4),
                f"{label}_tau": round(float(kendalltau(guess[1:], paced[1:])[0]), 4),
            }
        below = float(np.mean(paced[1:] <= predicted[1:] * (1 + fitted.margin)))
        row |= {"margin": round(fitted.margin, 4), "within_bound": round(below, 4)}
        append_row(out / "latency_model.csv", {**row, **provenance()})
        print(row, flush=True)


@app.command()
def budgets(quick: Quick = False, out: Out = RESULTS) -> None:
    """Whether what a search finds keeps to the latency."""
    cells = [(n, r, s) for s in range(SEEDS) for n in NETWORKS for r in RATIOS]
    for name, ratio, seed in cells[:1] if quick else cells:
        key = {"network": name, "engine": "onnxruntime", "threads": "1", "ratio": str(ratio), "seed": str(seed)}
        if finished(out / "latency_budgets.csv", key):
            continue
        latency = Latency("onnxruntime")
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            found = bcnet.find_widths(
                create(name, 10).build(),
                noise_images(create(name, 10).input_size),
                budget=Budget({latency: ratio}),
                run_dir=folder,
                score_of_widths=formula(seed),
                tags={"score": f"formula {seed}"},
                seed=seed,
                supernet_epochs=1,
                threads=1,
                population=20,
                generations=5,
            )
            seconds = time.monotonic() - began
            space, uniform = found.space, found.space.uniform(bcnet.Run.open(folder).budget)
        taken = milliseconds(name, latency, [space.original_widths, found.widths, uniform])
        row = {
            **key,
            "seconds": round(seconds, 1),
            "original_ms": round(float(taken[0]), 4),
            "searched_ratio": round(float(taken[1] / taken[0]), 4),
            "uniform_ratio": round(float(taken[2] / taken[0]), 4),
            "searched_macs": round(space.cost(found.widths).macs / space.reference.macs, 4),
        }
        append_row(out / "latency_budgets.csv", {**row, **provenance()})
        print(row, flush=True)


def formula(seed: int) -> Callable[[Widths], float]:
    """The sum of the widths' logarithms, weighted by draws of a seed."""

    def score(widths: Widths) -> float:
        weights = np.random.default_rng(seed).uniform(0.5, 1.5, len(widths))
        return float(sum(weight * math.log(width) for weight, width in zip(weights, widths, strict=True)))

    return score


def noise_images(shape: tuple[int, ...]) -> bcnet.DataSet:
    """Noise of ten classes: nothing is trained on it."""
    generator = torch.Generator().manual_seed(0)

    def images(count: int) -> Images:
        pixels = torch.randint(0, 256, (count, *shape), generator=generator, dtype=torch.uint8)
        return Images(pixels, torch.arange(count) % 10)

    names = tuple(str(label) for label in range(10))
    return bcnet.DataSet("noise", images(600), images(100), names, Augmentation())


if __name__ == "__main__":
    sys.exit(app())
