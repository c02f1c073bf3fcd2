"""On what does a search spend best: few candidates that are trained for long, or many that are trained briefly?

The original is trained on CIFAR-10 reduced to 16 x 16; candidates start from its most important channels, and a model
of their scores proposes them, as in the usual search. Arms differ in how many candidates there are, and for how much of
an epoch each is trained. The widths that an arm chooses are then trained for as long as final networks. Of the training
images 10,000 are trained on by nobody: one half scores the candidates, the other judges the chosen networks. The test
images take no part.

    python -m studies.spending [--quick] [--network vgg19_quarter] [--seeds 3] [--first-seed 0] [--threads 1]

Scores of candidates are kept below `--runs` and never computed twice, also where two arms ask for the same.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import nn

from bcnet.costs import Budget
from bcnet.data import Batch, TrainingBatches, fixed_batches, load
from bcnet.files import make_folder, read_tensors, write_tensors
from bcnet.models import create
from bcnet.searchers import Candidate, ModelBased, Study
from bcnet.space import Problem, Side, Widths, WidthSpace
from bcnet.supernet import Supernet, build, by_importance, recalibrate, reorder
from bcnet.train import (
    Checkpoints,
    FirstBatches,
    NetworkLearner,
    Recipe,
    derived_generator,
    derived_seed,
    load_recipe,
    train,
)
from studies.shared.cells import Cell, run_cells
from studies.shared.provenance import ROOT

DATA = ROOT.parent / "shared" / "data" / "cifar10"
EPOCHS = 10
MIN_RATIO = 0.2
REACH = 1.4
_HELD_OUT = 10_000
_STATISTICS = 20  # batches for the statistics of batch norm before a candidate's training


@dataclass(frozen=True)
class Arm:
    """So many `networks`, each trained for so many `epochs`, which may be a part of one."""

    networks: int
    epochs: float


ARMS = {
    "Uniform": Arm(0, 0),
    "small": Arm(20, 1),
    "halves": Arm(40, 1 / 2),
    "quarters": Arm(80, 1 / 4),
    "eighths": Arm(160, 1 / 8),
    "medium": Arm(60, 1),
}


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Digits, two epochs; writes results/quick_*.")] = False,
    network: Annotated[str, typer.Option(help="vgg19_quarter or resnet20.")] = "vgg19_quarter",
    arms: Annotated[list[str] | None, typer.Option("--arm", help="Some of the arms; all by default.")] = None,
    budgets: Annotated[list[float] | None, typer.Option("--budget", help="Shares of the multiply-adds.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    runs: Annotated[Path | None, typer.Option(help="Where originals and scores are.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the CSV file.")] = ROOT / "results",
) -> None:
    """Compute the rows that are missing."""
    if not quick and not DATA.exists():
        raise SystemExit(f"skipped: CIFAR-10 is read from {DATA}, which is not there")
    if unknown := sorted({*(arms or ())} - {*ARMS}):
        raise SystemExit(f"--arm takes {', '.join(ARMS)}; got {', '.join(unknown)}")
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        name = "resnet_digits" if quick else network
        place = runs or (Path(folder) if quick else Path("runs") / f"spending-{name}")
        chosen = {n: Arm(8, arm.epochs) if quick and arm.networks else arm for n, arm in ARMS.items()}
        cells = [
            cell
            for seed in range(first_seed, first_seed + (1 if quick else seeds))
            for cell in _cells(
                Job(name, seed, place),
                {n: chosen[n] for n in (("Uniform", "quarters") if quick else arms or ARMS)},
                (0.5,) if quick else budgets or (0.25,),
            )
        ]
        failed = run_cells(cells, out / ("quick_spending.csv" if quick else "spending.csv"), place / "logs")
    raise typer.Exit(bool(failed))


def _cells(job: Job, arms: dict[str, Arm], budgets: tuple[float, ...] | list[float]) -> Iterator[Cell]:
    for budget in budgets:
        for name, arm in arms.items():
            key = {"network": job.network, "seed": job.seed, "budget": budget, "arm": name}
            key |= {"networks": arm.networks, "epochs": arm.epochs}
            yield Cell(key, partial(job.row, arm, Budget(macs=budget)))


@dataclass
class Job:
    """A network, its original of one seed, and the images."""

    network: str
    seed: int
    runs: Path
    scored: dict[tuple[Widths, float], tuple[float, float]] = field(default_factory=dict)

    @property
    def quick(self) -> bool:
        """Return whether it is only to be seen that all runs."""
        return self.network == "resnet_digits"

    @cached_property
    def recipe(self) -> Recipe:
        """How originals and final networks are trained."""
        if self.quick:
            return load_recipe("digits").with_changes({"epochs": 2})
        return load_recipe("resnet-cifar10").with_changes({"epochs": EPOCHS})

    @cached_property
    def parts(self) -> tuple[TrainingBatches, list[Any], list[Any]]:
        """Training batches, and the images that score and judge."""
        data = load("digits") if self.quick else load(f"parquet:{DATA}", image_size=16)
        order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(self.seed))
        held = len(order) // 5 if self.quick else _HELD_OUT
        training = data.train.subset(order[held:])
        batches = TrainingBatches(training, self.recipe.batch_size, data.normaliser, data.augmentation)
        halves = (data.train.subset(part) for part in (order[: held // 2], order[held // 2 : held]))
        size = 32 if self.quick else 250
        scores, judges = (list(fixed_batches(images, size, data.normaliser)) for images in halves)
        return batches, scores, judges

    @cached_property
    def owner(self) -> tuple[WidthSpace, nn.Module, Supernet]:
        """The width space, and the trained original with its most important channels first."""
        torch.manual_seed(derived_seed(self.seed, "model"))
        batches, scores, _ = self.parts
        spec = create(self.network, num_classes=10, in_channels=scores[0][0].shape[1], image_size=scores[0][0].shape[2])
        model = spec.build()
        example = scores[0][0][:2]
        space = WidthSpace.trace(model, example, min_ratio=MIN_RATIO)
        make_folder(self.runs)
        file = self.runs / f"original-{self.seed}.safetensors"
        identity = {"network": self.network, "seed": self.seed}
        if not file.exists():
            kept = Checkpoints(file.with_suffix(".checkpoint"), identity)
            train(NetworkLearner(model), batches, self.recipe, seed=self.seed, checkpoints=kept)
            write_tensors(file, model.state_dict(), identity)
        model.load_state_dict(read_tensors(file, identity)[0])
        ranked = reorder(model, space, by_importance(model, space), example).eval()
        return space, ranked, Supernet(ranked, space)

    def trained(self, widths: Widths, epochs: float) -> nn.Module:
        """The network of these widths, trained from the original for so many epochs."""
        space, ranked, supernet = self.owner
        network = build(ranked, space, widths, weights=(supernet, Side.LEFT))
        batches = self.parts[0]
        drawn = batches.epoch(derived_generator(self.seed, "calibration"))
        recalibrate(network, [x for (x, _), _ in zip(drawn, range(_STATISTICS), strict=False)])
        return self.tune(network, epochs)

    def tune(self, network: nn.Module, epochs: float) -> nn.Module:
        """Train a network for so many epochs, or a part of one, and return it in eval mode."""
        batches = self.parts[0]
        seen: Any = batches if epochs >= 1 else FirstBatches(batches, epochs)
        recipe = self.recipe.with_changes({"epochs": max(1, round(epochs))})
        train(NetworkLearner(network), seen, recipe, seed=self.seed)
        return network.eval()

    def score(self, widths: Widths, epochs: float) -> float:
        """Minus the loss after a short training, kept on disk."""
        file = self.runs / f"scores-{self.seed}.jsonl"
        if not self.scored and file.exists():
            for line in file.read_text().splitlines():
                row = json.loads(line)
                self.scored[tuple(row["widths"]), row["epochs"]] = (row["loss"], row["seconds"])
        if (widths, epochs) not in self.scored:
            began = time.monotonic()
            loss, _ = loss_and_accuracy(self.trained(widths, epochs), self.parts[1])
            self.scored[widths, epochs] = (loss, time.monotonic() - began)
            row = {"widths": widths, "epochs": epochs, "loss": loss, "seconds": self.scored[widths, epochs][1]}
            with file.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
        return -self.scored[widths, epochs][0]

    def row(self, arm: Arm, budget: Budget) -> dict[str, object]:
        """What the arm chooses, and how it is judged."""
        space = self.owner[0]
        seconds = 0.0
        widths = space.uniform(budget)
        if arm.networks:
            found = self.search(space, budget, arm, lambda w: self.score(w, arm.epochs))
            seconds = sum(self.scored[c.widths, arm.epochs][1] for c in found)
            widths = ModelBased(arm.networks, reach=REACH).choose(Problem.of(space, budget, self.seed), found)[0].widths
        loss, accuracy = loss_and_accuracy(self.trained(widths, self.recipe.epochs), self.parts[2])
        original = loss_and_accuracy(self.owner[1], self.parts[2])
        return {
            "loss": round(loss, 5),
            "accuracy": round(accuracy, 3),
            "original_loss": round(original[0], 5),
            "original_accuracy": round(original[1], 3),
            "search_seconds": round(seconds, 1),
            "macs_ratio": round(space.cost(widths).macs / space.reference.macs, 4),
            "widths": " ".join(map(str, widths)),
        }

    def search(
        self, space: WidthSpace, budget: Budget, arm: Arm, score: Callable[[Widths], float]
    ) -> tuple[Candidate, ...]:
        """All candidates of an arm with their scores."""
        with Study(space, budget, searcher=ModelBased(arm.networks, reach=REACH), seed=self.seed) as study:
            study.optimize(score)
            return study.evaluations


@torch.no_grad()
def loss_and_accuracy(network: nn.Module, batches: list[Batch]) -> tuple[float, float]:
    """Cross-entropy in nats and top-1 in percent, of a network in eval mode."""
    losses = []
    right = []
    for x, y in batches:
        outputs = network(x)
        losses.append(nn.functional.cross_entropy(outputs, y).item())
        right.append((outputs.argmax(1) == y).float().mean().item())
    return float(np.mean(losses)), 100 * float(np.mean(right))


if __name__ == "__main__":
    typer.run(main)
