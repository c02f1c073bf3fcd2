"""Does it matter that a supernet stays fair where the search has a smallest width? Networks of at least half of each.

Of Channel-Bench-Macro's table 200 networks are drawn at random from those whose groups all keep two, three or four
quarters of their channels. Three supernets by BC with complement rank them, trained as in `studies.ranking` on equally
many paths; they differ in what is drawn and in what a draw leaves over:

- "l - c": draws of at least half, and the rest of the channels, one quarter of them where need be, as is usual here;
- "l + c_min - c": the same draws, and BCNetV2's complement, which has at least half too (`complementary-bounded`);
- "no smallest width": draws of all four quarters and the rest, so that a smallest width restricts the search alone.

`least_trained` is how often the least trained channel of a group took part, by how often the most trained one did, the
mean over the groups, by the widths that were drawn; `mean_accuracy` that of the paths scored, in percent. Tau is
Kendall's, with the accuracies of the table and the mean over both sides; its interval and that of the difference to
"l - c" are of resampled widths, and hold nothing of what another training would change. The row "macs" needs no
supernet: more MACs, better score.

    python -m studies.ranking.smallest [--quick] [--seed 0] [--only NAME ...] [--threads 1]

Supernets are trained and scored once, into `runs/ranking_smallest`; rows of `results/ranking_smallest.csv` are written
where "l - c", which they are compared to, is among those asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from bcnet.space import Side, Widths, WidthSpace
from bcnet.train import ChannelCounts, derived_generator
from studies.ranking.__main__ import DATA, QUICK
from studies.ranking.channel_bench_macro import DATA as TABLE
from studies.ranking.channel_bench_macro import Table
from studies.ranking.scores import MACS, METRICS
from studies.ranking.statistics import Array, Estimate, kendall, regret, resamples
from studies.ranking.supernets import SUPERNETS, Cell, Scoring, Training, Workload
from studies.shared.provenance import ROOT, append_row, finished, provenance

OUT = ROOT / "results" / "ranking_smallest.csv"
RUNS = ROOT / "runs" / "ranking_smallest"
FAIR = "l - c"
LIMITS = (0.5, 0.75, 1.0)  # of the MACs; within a quarter there are none of these networks


@dataclass(frozen=True)
class Arm:
    """A supernet: how its steps are drawn, and whether the draws have the smallest width that the search has."""

    strategy: str
    smallest: bool


ARMS = {
    FAIR: Arm("complementary", smallest=True),
    "l + c_min - c": Arm("complementary-bounded", smallest=True),
    "no smallest width": Arm("complementary", smallest=False),
}


def at_least_half(space: WidthSpace) -> WidthSpace:
    """The same space without the narrowest of the four quarters of each group."""
    return space.with_choices({group.name: group.choices[1:] for group in space.groups})


def least_trained(arm: Arm, space: WidthSpace, seed: int, steps: int) -> float:
    """How often the least trained channel of a group took part by how often the most trained one did, over the groups.

    What a step trains is drawn from its number and the seed, as the training draws it.
    """
    counts = ChannelCounts(space)
    strategy = SUPERNETS[arm.strategy]()
    for step in range(steps):
        counts.add(strategy.plan(space, derived_generator(seed, "supernet", "widths", step)))
    return float(np.mean([of.min() / of.max() for of in counts.of]))


@dataclass(frozen=True)
class Smallest:
    """The study's networks, and the supernets that rank them."""

    table: Table
    whole: Workload
    training: Training
    runs: Path
    data: str

    def sample(self, count: int) -> list[Widths]:
        """Networks of the table of at least half, uniform, without repetition."""
        space = at_least_half(self.table.space)
        inside = [w for w in self.table.rows if all(c in g.choices for c, g in zip(w, space.groups, strict=True))]
        return [inside[row] for row in np.random.default_rng(0).permutation(len(inside))[:count]]

    def workload(self, arm: Arm) -> Workload:
        """The data, and the space that the arm draws from."""
        return dataclasses.replace(self.whole, space=at_least_half(self.whole.space)) if arm.smallest else self.whole

    def cell(self, arm: Arm, seed: int) -> Cell:
        """Where the arm's supernet and its scores are kept."""
        drawn = "half" if arm.smallest else "all"
        return Cell(arm.strategy, seed, self.training, f"{self.data}, draws of {drawn}", self.runs / drawn)

    def scores(self, arm: Arm, seed: int, sample: list[Widths]) -> dict[str, Array]:
        """By metric the mean over both sides, higher is better; the supernet is trained first where it is not."""
        found = self.cell(arm, seed).scores(self.workload(arm), sample)

        def of(metric: str) -> Array:
            sign = -1.0 if metric == "loss" else 1.0
            return sign * np.array([np.mean([getattr(found[w, side], metric) for side in Side]) for w in sample])

        return {metric: of(metric) for metric in METRICS}


@dataclass(frozen=True)
class Judge:
    """The table's accuracies of the networks that are ranked, their share of the full network's MACs, and resamples."""

    truth: Array
    share: Array
    counts: Array

    @classmethod
    def of(cls, table: Table, sample: list[Widths]) -> Judge:
        """Of networks of the table."""
        rows = [table.rows[widths] for widths in sample]
        share = table.macs[rows] / table.space.reference.macs
        return cls(table.score("exact")[rows], share, resamples(len(sample)))

    def figures(self, guess: Array, other: Array | None = None) -> dict[str, object]:
        """How well a guess ranks, how much better than another, and what its choices cost, as columns."""
        columns = self.columns("tau", lambda w: kendall(guess, self.truth, w))
        if other is not None:
            columns |= self.columns(
                "tau_difference", lambda w: kendall(guess, self.truth, w) - kendall(other, self.truth, w)
            )
        for limit in LIMITS:
            columns |= self.columns(
                f"regret_{limit:.0%}", lambda w, limit=limit: regret(guess, self.truth, self.share, limit, w)
            )
        return columns

    def columns(self, name: str, statistic: Callable[[Array], Array]) -> dict[str, object]:
        """A figure of the networks as they are, and its interval."""
        return Estimate.of(statistic, self.counts).columns(name)


def main(
    quick: Annotated[bool, typer.Option(help="A few steps on scikit-learn's digits, to see that all runs.")] = False,
    data: Annotated[str, typer.Option(help="Images to train and score on, a name as of `bcnet search --data`.")] = DATA,
    table: Annotated[Path, typer.Option(help="Channel-Bench-Macro's table of the MobileNet.")] = TABLE,
    runs: Annotated[Path, typer.Option(help="Folder of supernets and scores.")] = RUNS,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
    only: Annotated[list[str] | None, typer.Option(help=f"Train and score these of {', '.join(ARMS)}.")] = None,
    seed: Annotated[int, typer.Option(help="Of the trainings.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
) -> None:
    """Train and score what is missing, and hold it against the table."""
    if not table.is_file():
        raise SystemExit(f"the table {table} is not there: get Channel-Bench-Macro's mobilenet.csv, or give --table")
    if unknown := set(only or ()) - set(ARMS):
        raise SystemExit(f"--only takes {', '.join(ARMS)}; got {', '.join(sorted(unknown))}")
    torch.set_num_threads(threads)
    training, scoring = QUICK if quick else (Training(), Scoring())
    data = "digits" if quick else data
    name_of_data = data.rpartition("/")[2]
    asked = {arm: ARMS[arm] for arm in only or ARMS}
    keys = {
        arm: {"supernet": arm, "seed": str(seed), "data": name_of_data, "epochs": str(training.epochs)} for arm in asked
    }
    if all(finished(out, {**key, "score": metric}) for key in keys.values() for metric in METRICS):
        return
    workload = Workload.open(data, training, scoring, "cpu")
    study = Smallest(Table.read(table), workload, training, runs, name_of_data)
    sample = study.sample(scoring.widths)
    scores = {name: study.scores(arm, seed, sample) for name, arm in asked.items()}
    if FAIR not in scores:
        return
    judge = Judge.of(study.table, sample)
    steps = training.epochs * len(workload.training)
    settings = {"image_size": training.image_size, "networks": len(sample), "images": scoring.images}
    for name, arm in asked.items():
        trained = {
            "least_trained": round(least_trained(arm, study.workload(arm).space, seed, steps), 4),
            "mean_accuracy": round(float(scores[name]["accuracy"].mean()), 2),
        }
        seconds = study.cell(arm, seed).seconds()
        for metric in METRICS:
            key = {**keys[name], "score": metric}
            if not finished(out, key):
                figures = judge.figures(scores[name][metric], scores[FAIR][metric])
                spent = {f"{stage}_seconds": seconds[stage] for stage in ("training", "scoring")}
                append_row(out, {**key, **settings, **trained, **figures, **spent, **provenance()})
    macs = {"supernet": str(MACS), "data": name_of_data, "networks": str(len(sample))}
    if not finished(out, macs):
        append_row(out, {**macs, **judge.figures(judge.share), **provenance()})


if __name__ == "__main__":
    typer.run(main)
