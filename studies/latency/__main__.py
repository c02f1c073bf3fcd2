"""How well is the latency of a network predicted that was never measured, and what is a search by it worth?

`model`: calibrate each network on an engine, on one thread, then time forty networks that took no part: twenty drawn
as calibration draws them, and twenty random ones at half the multiply-adds, as what a search chooses among is. All
have the default multiples. Median and 90 % quantile of the relative error and Spearman's rank correlation of both,
each beside those of an affine function of the multiply-adds that is fitted to those forty networks themselves; and
what the calibration took.

`accuracy`: CIFAR-10 at 16 x 16 pixels, one thread. The small search under half of the original's time on an engine, and
the widest Uniform network in multiples of 8 that takes no longer, as both are measured in turns; beside them the run's
own Uniform network, in the usual multiples under the same limit. All are trained by one recipe from one original.
Widths are chosen on held-out training images.

Finished cells are rows of the CSVs and are never computed again.

    python -m studies.latency model [--quick]
    python -m studies.latency accuracy [--quick] [--engine onnxruntime] [--network vgg19_quarter] [--seeds 3]
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from scipy.stats import spearmanr

import bcnet
from bcnet.costs import Latency
from bcnet.errors import BudgetError, ExportError, RunError
from bcnet.latency import draws, engine_of, engine_times, measure_steadily
from bcnet.models import create
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.supernet import build
from studies.shared.provenance import ROOT, append_row, finished, provenance
from studies.shared.torchvision_here import let_torchvision_import

RESULTS = ROOT / "results"
CIFAR = ROOT.parent / "shared" / "data" / "cifar10"
NETWORKS = {"resnet20": 32, "vgg19_quarter": 32, "timm:mobilenetv2_100": 224}
ENGINES = ("onnxruntime", "openvino", "torch", "ncnn", "litert", "executorch")  # those last that convert slowly
UNSEEN = 20  # of each kind
UNIFORM = np.linspace(0.1, 1, 31)  # shares of the channels in the Uniform networks that are timed
SHARE, QUICK_SHARE = 0.5, 0.8  # of the original's time
RUNS = ROOT / "runs" / "latency_accuracy"
Timer = Callable[[Widths], Callable[[], object]]
app = typer.Typer(add_completion=False)
Quick = Annotated[bool, typer.Option(help="One cell, to see that everything runs.")]
Out = Annotated[Path, typer.Option(help="Folder of the CSVs.")]
Runs = Annotated[Path, typer.Option(help="Folder of the runs.")]


def timer(network: torch.nn.Module, image: torch.Tensor, space: WidthSpace, latency: Latency) -> Timer:
    """What makes a timed call of widths."""
    return engine_times(engine_of(latency.engine), lambda w: build(network, space, w), image, latency.threads)


@app.command()
def model(quick: Quick = False, out: Out = RESULTS) -> None:
    """Errors on networks that the calibration has not seen."""
    let_torchvision_import()
    torch.set_num_threads(1)
    for engine, name in [("torch", "resnet20")] if quick else itertools.product(ENGINES, NETWORKS):
        if finished(out / "latency_model.csv", {"network": name, "engine": engine}):
            continue
        try:
            row = _errors_of(name, engine, 6 if quick else UNSEEN)
        except (BudgetError, ExportError) as error:
            print(f"left out: {name} on {engine}: {error}", flush=True)  # the same command tries again
            continue
        append_row(out / "latency_model.csv", {**row, **provenance()})
        print(row, flush=True)


def _errors_of(name: str, engine: str, count: int) -> dict[str, object]:
    """The row of a network on an engine, from `count` unseen networks of each kind."""
    size = NETWORKS[name]
    network = create(name, 10, image_size=size).build().eval()
    image = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    space = WidthSpace.trace(network, image)
    began = time.monotonic()
    latency = bcnet.calibrate(network, image, latency=Latency(engine))  # type: ignore[arg-type]
    seconds = time.monotonic() - began
    fitted = latency.model
    assert fitted is not None
    kinds = {"draws": list(itertools.islice(draws(space, seed=1), 2, count + 2))}
    kinds["half"] = [space.random(macs=0.5, seed=seed) for seed in range(count)]
    unseen = list(dict.fromkeys(itertools.chain(*kinds.values())))
    times = timer(network, image, space, latency)
    found = {m.widths: m for m in measure_steadily(times, unseen, 1, fitted.references)}
    row: dict[str, object] = {
        "network": name,
        "pixels": size,
        "engine": engine,
        "version": engine_of(engine).version,
        "calibrated_on": fitted.count,
        "calibration_seconds": round(seconds, 1),
        "form": fitted.form,
        "original_ms": round(fitted.original / 1e6, 4),
        "unseen": len(unseen),
        "noise": round(float(np.median([m.noise for m in found.values()])), 4),
    }
    taken = np.array([found[widths].nanoseconds for widths in unseen])
    macs = np.array(space.cost(np.array(unseen)).macs, dtype=np.float64)
    line = np.polyfit(macs, taken, 1, w=1 / taken)  # fitted to these very networks
    for kind, networks in kinds.items():
        array = np.array(networks)
        measured = np.array([found[widths].nanoseconds for widths in networks])
        guesses = {"model": fitted.predict(array), "macs": np.polyval(line, space.cost(array).macs)}
        for label, guess in guesses.items():
            errors = np.abs(guess / measured - 1)
            row |= {
                f"{kind}_{label}_median_error": round(float(np.median(errors)), 4),
                f"{kind}_{label}_90_error": round(float(np.quantile(errors, 0.9)), 4),
                f"{kind}_{label}_rank_correlation": round(float(spearmanr(guess, measured)[0]), 4),
            }
    below = float(np.mean(taken <= fitted.predict(np.array(unseen)) * (1 + fitted.margin)))
    return row | {"margin": round(fitted.margin, 4), "within_bound": round(below, 4)}


@app.command()
def accuracy(
    quick: Quick = False,
    engine: Annotated[str, typer.Option(help="Where times are taken.")] = "onnxruntime",
    network: Annotated[str, typer.Option(help="vgg19_quarter or resnet20.")] = "vgg19_quarter",
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    out: Out = RESULTS,
    runs: Runs = RUNS,
) -> None:
    """Accuracy at equal latency: searched by latency, and Uniform."""
    name = "resnet_digits" if quick else network
    share = QUICK_SHARE if quick else SHARE
    table = out / "latency_accuracy.csv"
    for seed in range(first_seed, first_seed + (1 if quick else seeds)):
        key = {
            "configuration": f"{'8x8, 1 epoch' if quick else '16x16, 10 epochs'}, small effort",
            "network": name,
            "engine": engine,
            "share": str(share),
            "seed": str(seed),
        }
        if finished(table, {**key, "widths_by": "Uniform"}):
            continue
        try:
            found = _at_equal_latency(name, engine, share, seed, runs / f"{name}-{engine}" / str(seed), quick)
        except RunError as error:  # none of the best is quick enough as measured
            print(f"{key}: {error}", flush=True)
            continue
        for row in found:
            append_row(table, {**key, **row, **provenance()})
            print(key, row, flush=True)


def _at_equal_latency(
    name: str, engine: str, share: float, seed: int, folder: Path, quick: bool
) -> list[dict[str, object]]:
    """The rows of one network and seed; what is trained, searched or chosen already is read."""
    settings = {
        "model": name,
        "data": "digits" if quick else f"parquet:{CIFAR}",
        "start": "original",
        "training": {"epochs": 1} if quick else {"recipe": "resnet-cifar10", "epochs": 10, "precision": "fp32"},
        "seed": seed,
        "options": {"threads": 1} if quick else {"threads": 1, "image_size": 16},
        "progress": False,
    }
    latency = Latency(engine)  # type: ignore[arg-type]
    small = bcnet.Trainings(effort="small", networks=4 if quick else None)
    found = bcnet.search(**settings, budget=Budget({latency: share}), method=small, run_dir=folder / "searched").result
    assert found is not None, "the run is whole"
    spec = create(name, 10, image_size=None if quick else 16)
    network = spec.build()
    image = torch.rand(1, *spec.input_size, generator=torch.Generator().manual_seed(0))
    space = WidthSpace.trace(network, image, multiple_of=8)
    own = {which: tuple(found.networks[which].widths) for which in ("searched", "uniform")}
    uniform, ratios = _no_slower(space, own, timer(network, image, space, latency), folder / "uniform.json")
    given = bcnet.search(
        **settings, method=bcnet.Given(uniform), run_dir=folder / "uniform", reuse=[folder / "searched"]
    ).result
    assert given is not None, "the run is whole"
    original = found.networks["original"]
    trained = {
        "latency": found.networks["searched"],
        "Uniform under the same limit": found.networks["uniform"],
        "Uniform": given.networks["searched"],
    }
    return [
        {
            "widths_by": label,
            "top1": round(network.test["top1"], 3),
            "original_top1": round(original.test["top1"], 3),
            "latency_ratio": ratio,
            "macs_ratio": round(network.macs_ratio, 4),
            "params": network.params,
            "widths": " ".join(map(str, network.widths)),
        }
        for (label, network), ratio in zip(trained.items(), ratios, strict=True)
    ]


def _no_slower(space: WidthSpace, own: dict[str, Widths], times: Timer, file: Path) -> tuple[Widths, list[float]]:
    """The widest Uniform network that takes no longer than the one searched, and times over the original's.

    These are of the run's `own` two and of it. Kept in `file`: what depends on it goes on with the same one.
    """
    if not file.exists():
        uniforms = dict.fromkeys(space.scaled(float(ratio)) for ratio in UNIFORM)
        batch = list(dict.fromkeys((*own.values(), space.full, *uniforms)))
        taken = {one.widths: one.nanoseconds for one in measure_steadily(times, batch, 1, ())}
        no_slower = [widths for widths in uniforms if taken[widths] <= taken[own["searched"]]]
        widest = max(
            no_slower or [min(uniforms, key=lambda widths: taken[widths])], key=lambda widths: space.cost(widths).macs
        )
        ratios = [round(taken[widths] / taken[space.full], 4) for widths in (*own.values(), widest)]
        file.write_text(json.dumps({"widths": widest, "ratios": ratios}), encoding="utf-8")
    kept = json.loads(file.read_text(encoding="utf-8"))
    return tuple(kept["widths"]), kept["ratios"]


if __name__ == "__main__":
    sys.exit(app())
