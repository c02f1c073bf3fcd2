"""How well do short trainings from the trained original rank widths, which is what the usual search scores by?

Channel-Bench-Macro's MobileNet is trained for a few epochs. Candidates, drawn at random from the table, then start from
its most important channels and are trained for one epoch each, on the images that supernets of `studies.ranking` see,
by the recipe for CIFAR-10 of `bcnet`; their score is minus their loss on the held-out images. A score model is fitted
to these scores (`bcnet.searchers.ScoreModel`), and what it expects of the 200 networks that `ranking_scores.csv` judges
supernets by, none of which was trained here, is held against the table.

A path-epoch is one network on the training images once: 4 epochs of the original and 12 candidates are 16 of them, 36
candidates 40.

    python -m studies.ranking.trainings [--quick] [--seed 0] [--threads 1]

Candidates are rows of `results/ranking_trainings.csv`, and never trained twice; what follows from 12 and from 36 of
them are rows of `results/ranking_model.csv`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import nn

from bcnet.data import TrainingBatches
from bcnet.files import make_folder, read_tensors, write_tensors
from bcnet.searchers import TRUST_IN_PATHS, ScoreModel
from bcnet.space import Side, Widths
from bcnet.supernet import Supernet, build, by_importance, recalibrate, reorder
from bcnet.train import Checkpoints, NetworkLearner, Recipe, derived_seed, load_recipe, train
from studies.ranking.__main__ import DATA, QUICK
from studies.ranking.channel_bench_macro import DATA as TABLE
from studies.ranking.channel_bench_macro import MOBILENET, Table
from studies.ranking.score_model import OUT as MODEL_OUT
from studies.ranking.score_model import SCORES, cells_of, judge, widths_of
from studies.ranking.supernets import Scoring, Training, Workload, score_of
from studies.shared.provenance import ROOT, append_row, provenance, rows_of

OUT = ROOT / "results" / "ranking_trainings.csv"
RUNS = ROOT / "runs" / "ranking_trainings"
RECIPE = "resnet-cifar10"
CANDIDATES = (12, 36)
_STATISTICS = 20  # batches for the statistics of batch norm before a candidate's training


@dataclass(frozen=True)
class Trainings:
    """The original and the candidates of one seed, kept below `runs` and in the rows of `out`."""

    workload: Workload
    training: Training
    seed: int
    runs: Path
    out: Path

    @property
    def key(self) -> dict[str, str]:
        """The columns that tell this original's candidates from others."""
        how = self.training
        return {"image_size": str(how.image_size), "epochs": str(how.epochs), "seed": str(self.seed)}

    @property
    def recipe(self) -> Recipe:
        """How the original is trained; candidates are for one epoch."""
        changes = {"batch_size": self.training.batch_size, "epochs": self.training.epochs}
        return load_recipe(RECIPE).with_changes(changes)

    @property
    def batches(self) -> TrainingBatches:
        """The images that nothing is scored on."""
        return self.workload.training

    def original(self) -> nn.Module:
        """The trained original, trained first where it is not."""
        torch.manual_seed(derived_seed(self.seed, "model"))
        network = self.workload.made(self.workload.network, self.workload.data)
        identity = {**self.key, "what": "original"}
        make_folder(self.runs)
        file = self.runs / f"original-{self.training.epochs}epochs-seed{self.seed}.safetensors"
        if not file.exists():
            checkpoints = Checkpoints(file.with_suffix(".checkpoint"), identity)
            train(NetworkLearner(network), self.batches, self.recipe, seed=self.seed, checkpoints=checkpoints)
            write_tensors(file, network.state_dict(), identity)
            for checkpoint in self.runs.glob(f"{checkpoints.path.stem}*checkpoint*"):
                checkpoint.unlink()
        network.load_state_dict(read_tensors(file, identity)[0])
        return network.eval()

    def losses(self, candidates: list[Widths], truth: dict[Widths, float]) -> list[float]:
        """The held-out losses of candidates after their training, those of rows that are there as they stand."""
        found = []
        ranked: Ranked | None = None
        for number, widths in enumerate(candidates, 1):
            key = {**self.key, "architecture": " ".join(map(str, widths))}
            rows = rows_of(self.out, key)
            if not rows:
                ranked = ranked or Ranked.of(self.original(), self.workload)
                began = time.monotonic()
                score = score_of(self._trained(ranked, widths), self.workload.validation)
                row = {
                    **key,
                    "table_accuracy": round(truth[widths], 4),
                    "accuracy": round(score.accuracy, 4),
                    "loss": round(score.loss, 6),
                    "seconds": round(time.monotonic() - began, 1),
                    **provenance(),
                }
                append_row(self.out, row)
                print(f"{number}/{len(candidates)}", row, flush=True)
                rows = rows_of(self.out, key)
            found.append(float(rows[0]["loss"]))
        return found

    def _trained(self, ranked: Ranked, widths: Widths) -> nn.Module:
        network = ranked.built(widths)
        train(NetworkLearner(network), self.batches, self.recipe.with_changes({"epochs": 1}), seed=self.seed)
        return network.eval()


@dataclass(frozen=True)
class Ranked:
    """A trained network with its channels in the order of their importance, which candidates are cut out of."""

    network: nn.Module
    supernet: Supernet
    workload: Workload

    @classmethod
    def of(cls, original: nn.Module, workload: Workload) -> Ranked:
        """Sort the channels of a trained original."""
        example = workload.validation[0][0][:2]
        network = reorder(original, workload.space, by_importance(original, workload.space), example).eval()
        return cls(network, Supernet(network, workload.space), workload)

    def built(self, widths: Widths) -> nn.Module:
        """A narrow network of the most important channels."""
        network = build(self.network, self.workload.space, widths, weights=(self.supernet, Side.LEFT))
        images = (x for x, _ in self.workload.training.epoch(torch.Generator().manual_seed(0)))
        return recalibrate(network, [x for x, _ in zip(images, range(_STATISTICS), strict=False)])


def drawn(table: Table, judged: list[Widths], seed: int, count: int) -> list[Widths]:
    """Candidates at random from the table, none of those that are judged; fewer are the first of more."""
    apart = set(judged)
    others = [widths for widths in table.rows if widths not in apart]
    order = np.random.default_rng([seed, 11]).permutation(len(others))
    return [others[row] for row in order[:count]]


def main(
    quick: Annotated[bool, typer.Option(help="A few steps on scikit-learn's digits, to see that all runs.")] = False,
    data: Annotated[str, typer.Option(help="Images to train and score on, a name as of `bcnet search --data`.")] = DATA,
    table: Annotated[Path, typer.Option(help="Channel-Bench-Macro's table of the MobileNet.")] = TABLE,
    scores: Annotated[Path, typer.Option(help="Scores of supernets, whose networks are judged.")] = SCORES,
    runs: Annotated[Path, typer.Option(help="Folder of the originals.")] = RUNS,
    out: Annotated[Path, typer.Option(help="CSV of the candidates.")] = OUT,
    model_out: Annotated[Path, typer.Option(help="CSV of what follows.")] = MODEL_OUT,
    seed: Annotated[int, typer.Option(help="Of the original and of the draw of candidates.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
) -> None:
    """Train what is missing, and judge what the model of the scores expects."""
    for needed in (table, scores):
        if not needed.is_file():
            raise SystemExit(f"{needed} is not there: the table is Channel-Bench-Macro's, the scores studies.ranking's")
    torch.set_num_threads(threads)
    training = Training(batch_size=128)
    scoring = Scoring()
    counts = CANDIDATES
    if quick:
        training, scoring = QUICK
        data = "digits"
        counts = (4,)
    truths = Table.read(table)
    workload = Workload.open(data, training, scoring, "cpu", MOBILENET)
    judged = widths_of(next(iter(cells_of(scores).values())))
    trainings = Trainings(workload, training, seed, runs, out)
    truth = dict(zip(truths.rows, truths.score("exact"), strict=True))
    for count in counts:
        candidates = drawn(truths, judged, seed, count)
        values = [-loss for loss in trainings.losses(candidates, truth)]
        size = training.image_size
        spent = training.epochs + count
        name = f"{count} trainings of an epoch from the original, {spent} path-epochs at {size}x{size}, loss"
        for kind, trust in (("model", 1.0), ("model and closed form", TRUST_IN_PATHS)):
            guess = ScoreModel.fit(truths.space, candidates, values, trust).predict(judged)
            exact = np.array([truth[widths] for widths in judged])
            judge(truths, judged, exact, [guess], {"scores": name, "seed": str(seed), "kind": kind}, model_out)


if __name__ == "__main__":
    typer.run(main)
