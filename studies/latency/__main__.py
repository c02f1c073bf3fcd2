"""How well is the latency of a network predicted that was never measured, and what is a search by it worth?

`model`: calibrate each network on an engine, on one thread, then time forty networks that took no part: twenty drawn
as calibration draws them, and twenty random ones at half the multiply-adds, as what a search chooses among is. All
have the default multiples. Median and 90 % quantile of the relative error and Spearman's rank correlation of both,
each beside those of an affine function of the multiply-adds that is fitted to those forty networks themselves; and
what the calibration took.

`accuracy`: CIFAR-10 halved to 16 x 16 pixels, on ONNX Runtime, one thread. Widths searched by multiply-adds, under a
share of the original's; widths searched by latency, under what the first ones take as measured; and the widest Uniform
network that takes no longer, as measured too. Both searches are of the usual effort and from one original, from which
all three networks are trained by the same recipe, and they are timed in turns. Widths are chosen on held-out training
images.

Finished cells are rows of the CSVs and are never computed again.

    python -m studies.latency model|accuracy [--quick]
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from scipy.stats import spearmanr

import bcnet
from bcnet.costs import Latency, read_latency
from bcnet.errors import BudgetError, ExportError, RunError
from bcnet.latency import draws, engine_of, engine_times, measure_steadily
from bcnet.models import create
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.supernet import build
from studies.shared.provenance import ROOT, append_row, finished, provenance
from studies.shared.torchvision_here import let_torchvision_import

RESULTS = ROOT / "results"
NETWORKS = {"resnet20": 32, "vgg19_quarter": 32, "timm:mobilenetv2_100": 224}
ENGINES = ("onnxruntime", "openvino", "torch", "ncnn", "litert", "executorch")  # those last that convert slowly
UNSEEN = 20  # of each kind
SEEDS_OF_ACCURACY = 2
SHARES_OF_MACS = (0.5, 0.25)
NEAR = np.linspace(-0.25, 0.15, 41)  # Uniform networks that are timed, off the limit as predicted
RUNS = ROOT / "runs" / "latency_accuracy"
Timer = Callable[[Widths], Callable[[], object]]
app = typer.Typer(add_completion=False)
Quick = Annotated[bool, typer.Option(help="One cell, to see that everything runs.")]
Out = Annotated[Path, typer.Option(help="Folder of the CSVs.")]
Runs = Annotated[Path, typer.Option(help="Folder of the runs.")]


@dataclass(frozen=True)
class Effort:
    """How much is trained and searched for accuracies."""

    networks: tuple[str, ...] = ("vgg19_quarter", "resnet20")
    data: str = f"parquet:{ROOT.parent / 'shared' / 'data' / 'cifar10'}"
    image_size: int = 16
    recipe: str = "resnet-cifar10"
    epochs: int = 6
    shares: tuple[float, ...] = SHARES_OF_MACS

    def __str__(self) -> str:
        return f"{self.image_size}x{self.image_size}, medium effort, from the original, networks {self.epochs} epochs"


QUICK = Effort(("resnet_digits",), "digits", 8, "digits", 1, (0.5,))


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
def accuracy(quick: Quick = False, out: Out = RESULTS, runs: Runs = RUNS) -> None:
    """Accuracy at equal latency: searched by latency, searched by multiply-adds, Uniform."""
    effort = QUICK if quick else Effort()
    seeds = range(1 if quick else SEEDS_OF_ACCURACY)
    for seed, share, name in itertools.product(seeds, effort.shares, effort.networks):
        key = {"configuration": str(effort), "network": name, "macs_share": str(share), "seed": str(seed)}
        table = out / "latency_accuracy.csv"
        if finished(table, {**key, "widths_by": "Uniform"}):
            continue
        try:
            found = _at_equal_latency(effort, name, share, seed, runs / name)
        except RunError as error:  # none of the best is quick enough as measured
            print(f"{key}: {error}", flush=True)
            continue
        for row in found:
            append_row(table, {**key, **row, **provenance()})


def _at_equal_latency(effort: Effort, name: str, share: float, seed: int, folder: Path) -> list[dict[str, object]]:
    """The rows of one network, share and seed; what is trained or searched already is read."""
    spec = create(name, 10, image_size=effort.image_size)
    network = spec.build()
    image = torch.rand(1, *spec.input_size, generator=torch.Generator().manual_seed(0))
    space = WidthSpace.trace(network, image, multiple_of=1)
    latency = _calibrated(network, image, folder / "device.json")
    assert latency.model is not None
    settings = {
        "model": name,
        "data": effort.data,
        "training": {"recipe": effort.recipe, "epochs": effort.epochs},
        "seed": seed,
        "options": {"threads": 1, "image_size": effort.image_size},
        "progress": False,
    }
    cell = folder / f"seed{seed}-{share}"
    of_seed = [folder / f"seed{seed}-{other}" / "MACs" for other in effort.shares]  # one original for all

    def searched(by: str, budget: Budget) -> Widths:
        found = bcnet.search(**settings, budget=budget, run_dir=cell / by, reuse=_there(of_seed), until="widths")
        assert found.widths is not None, "the search is at its end"
        return found.widths

    def nanoseconds(widths: Iterable[Widths]) -> dict[Widths, float]:
        times = timer(network, image, space, latency)
        return {m.widths: m.nanoseconds for m in measure_steadily(times, list(dict.fromkeys(widths)), 1, references)}

    references = latency.model.references
    by_macs = searched("MACs", Budget(macs=share))
    limit = _kept(cell / "limit.json", lambda: round(nanoseconds([by_macs])[by_macs]))
    by_latency = searched("latency", Budget({latency: limit}))
    near = [space.uniform(Budget({latency: round(limit * (1 + off))})) for off in NEAR]
    uniform = max((w for w, time in nanoseconds(near).items() if time <= limit), key=lambda w: space.cost(w).macs)
    found = {"MACs": by_macs, "latency": by_latency, "Uniform": uniform}
    taken = nanoseconds(found.values())
    rows: list[dict[str, object]] = []
    for label, widths in found.items():
        trained = bcnet.search(
            **settings,
            method=bcnet.Given(widths),
            start="original",
            run_dir=cell / f"trained-{label}",
            reuse=_there(of_seed),
            until="network",
        )
        cost = space.cost(widths)
        rows.append(
            {
                "widths_by": label,
                "top1": round(trained.test.figures["top1"], 3),
                "latency_ratio": round(taken[widths] / latency.model.original, 4),
                "macs_ratio": round(cost.macs / space.reference.macs, 4),
                "params": cost.params,
                "widths": " ".join(map(str, widths)),
            }
        )
        print(name, share, seed, rows[-1], flush=True)
    return rows


def _kept(file: Path, measure: Callable[[], int]) -> int:
    """A number that is measured once: what depends on it goes on with the same one."""
    if not file.exists():
        file.write_text(json.dumps(measure()), encoding="utf-8")
    return int(json.loads(file.read_text(encoding="utf-8")))


def _calibrated(network: torch.nn.Module, image: torch.Tensor, file: Path) -> Latency:
    """The latency of a network, as kept in `file`, without the margin, which only what it limits would pay for."""
    if file.exists():
        latency = read_latency(file)
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        latency = bcnet.calibrate(network, image, latency=Latency("onnxruntime"), path=file)
    assert latency.model is not None
    return dataclasses.replace(latency, model=dataclasses.replace(latency.model, margin=0.0))


def _there(runs: Iterable[Path]) -> list[Path]:
    return [run for run in runs if (run / "settings.json").exists()]


if __name__ == "__main__":
    sys.exit(app())
