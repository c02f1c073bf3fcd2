"""How many images does early stopping save, and what does it cost? Replayed on scores of every candidate and batch.

One supernet of ResNet-20 is trained on CIFAR-10 at half resolution (16x16). A real search of its space (12 groups, up
to 20 choices, half the MACs, the first generation from the prior) scores every candidate on 40 batches of 125 images
held out of the training images, by LEFT and RIGHT: a matrix of right answers and losses.

The generations that the search met are raced from the matrix, each time with the batches in another order. Which
candidates come is fixed, whom the race retains is its own affair. Every second candidate of each generation, with half
as many parents, is for choosing the level of the bound; the others judge it; `all` are both. Chosen is the level that
takes the fewest batches among those whose regret is at most 0.1 points in 95 % of the races, for scores by accuracy.

Regret is the score on all batches of the best candidate met minus that of the winner; `front_lost` is the share of the
hypervolume of all candidates met that the race's front lacks.

Everything is resumed: a finished cell is a row of the CSV.

    python -m studies.early_stopping [--quick] [--races 200] [--threads 1] [--runs runs/early_stopping]
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from bcnet.prior import learn_prior
from bcnet.searchers import (
    Candidate,
    Contest,
    Evolution,
    Proposals,
    Race,
    Searcher,
    SearchResult,
    effort,
    hypervolume,
    pareto_front,
    retained,
    search_widths,
)
from bcnet.space import Budget, Problem, Widths, WidthSpace
from studies.early_stopping.matrix import Laboratory, Matrix, Training
from studies.shared.provenance import ROOT, append_row, finished, provenance, rows

DATA = f"parquet:{ROOT.parent / 'shared' / 'data' / 'cifar10'}"
OUT = ROOT / "results" / "early_stopping.csv"
RUNS = ROOT / "runs" / "early_stopping"
BUDGET = Budget(macs=0.5)
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2)
METRICS = ("accuracy", "loss")
TOLERANCE = 0.1  # points of accuracy, in 95 % of the races
PARTS = {"choosing": slice(0, None, 2), "judging": slice(1, None, 2), "all": slice(None)}  # of each generation
_MATRIX = "search"
_QUICK = Training("resnet_digits", image_size=8, epochs=1, batch_size=128)


@dataclass(frozen=True)
class TableScore:
    """Scores of candidates on single batches, `(candidates, batches)`, looked up."""

    rows: dict[Widths, int]
    values: np.ndarray

    @classmethod
    def of(cls, matrix: Matrix, metric: str, order: int) -> TableScore:
        """The scores of a matrix, the batches shuffled by the seed `order`."""
        places = np.random.default_rng(order).permutation(matrix.loss.shape[2])
        known = {tuple(widths): row for row, widths in enumerate(matrix.widths.tolist())}
        return cls(known, matrix.scores(metric)[:, places])

    @property
    def batches(self) -> int:
        """How many there are."""
        return int(self.values.shape[1])

    def on_batch(self, widths: Widths, number: int) -> float:
        """The score on one batch."""
        return float(self.values[self.rows[widths], number])

    def __call__(self, widths: Widths) -> float:
        """The score on all batches."""
        return float(self.values[self.rows[widths]].mean())


@dataclass(frozen=True)
class Recorded(Searcher):
    """Generations met before, again: the candidates are given, and evolution's parents are retained among them."""

    generations: tuple[tuple[Widths, ...], ...]
    parents: int = 10

    @property
    def limit(self) -> int:
        """All candidates."""
        return sum(map(len, self.generations))

    def proposals(self, problem: Problem) -> Proposals:
        """Yield the generations (see `Searcher`)."""
        held: list[Widths] = []
        scores: dict[Widths, float] = {}
        for generation in self.generations:
            pool = [*held, *generation]
            keeps = functools.partial(retained, macs=problem.space.cost(np.array(pool)).macs, keep=self.parents)
            sent = yield Contest(generation, held, keeps)
            scores |= {w: s for w, s in zip(generation, sent, strict=True) if np.isfinite(s)}
            known = np.array([number for number, w in enumerate(pool) if w in scores])
            chosen = keeps(np.array([[scores[pool[number]] for number in known]]), known)[0]
            held = [pool[number] for number in known[chosen]]


@dataclass(frozen=True)
class Study:
    """The study's cells and the files they end in."""

    lab: Laboratory
    out: Path
    races: int = 200
    levels: tuple[float, ...] = LEVELS
    population: int = 40
    generations: int = 50
    parents: int = 10

    @functools.cached_property
    def space(self) -> WidthSpace:
        """The space that is searched."""
        return self.lab.space()

    @functools.cached_property
    def searcher(self) -> Evolution:
        """The searches' evolution."""
        records = self.lab.records()
        prior = learn_prior(self.space, records.steps, records.widths, records.losses, BUDGET)
        return Evolution(self.population, self.generations, self.parents, prior, macs_from=0.0)

    @functools.cached_property
    def search(self) -> SearchResult:
        """The search that scores everything, by accuracy."""
        ask = self.lab.asking(_MATRIX)
        images = self.lab.score_batch_size / 100
        return search_widths(
            self.space, lambda widths: float(ask(widths)[0].mean() / images), BUDGET, searcher=self.searcher
        )

    @functools.cache  # noqa: B019 - one study per process
    def met(self, part: str) -> tuple[Recorded, Matrix]:
        """What the search met of one part, and its matrix."""
        met = [c.widths for c in self.search.evaluations]
        starts = range(0, len(met), self.population)
        generations = tuple(tuple(met[start : start + self.population][PARTS[part]]) for start in starts)
        parents = self.parents // (PARTS[part].step or 1)
        matrix = self.lab.matrix(_MATRIX, [widths for generation in generations for widths in generation])
        return Recorded(generations, parents), matrix

    def race(self, part: str, metric: str, level: float, order: int) -> dict[str, float]:
        """What one race took and found."""
        recorded, matrix = self.met(part)
        score = TableScore.of(matrix, metric, order)
        found = search_widths(self.space, score, BUDGET, searcher=recorded, early_stop=Race(level=level))
        whole = [Candidate(c.widths, score(c.widths), c.cost) for c in found.evaluations]
        lowest = min(c.score for c in whole)
        macs = found.budget.macs
        assert isinstance(macs, int)
        area = [hypervolume(pareto_front(of), lowest, macs) for of in (whole, found.evaluations)]
        return {
            "effort": found.effort,
            "effort_last": effort(found.evaluations[-len(recorded.generations[-1]) :]),
            "stopped": found.stopped / len(found.evaluations),
            "regret": max(c.score for c in whole) - found.best.score,
            "front_lost": 1 - area[1] / area[0] if area[0] else 0.0,
        }

    @property
    def settings(self) -> dict[str, str]:
        """The columns that tell this study's cells from those of other settings."""
        training = self.lab.training
        return {
            "network": training.network,
            "data": str(self.lab.identity["data"]),
            "image_size": str(training.image_size),
            "supernet_epochs": str(training.epochs),
            "batches": str(len(self.lab.validation())),
            "score_batch_size": str(self.lab.score_batch_size),
            "population": str(self.population),
            "generations": str(self.generations),
        }

    def key(self, part: str, metric: str, level: float) -> dict[str, str]:
        """The columns that name a cell of races."""
        return {"part": part, "score": metric, "level": str(level), "races": str(self.races), **self.settings}

    def finish(self, part: str, metric: str, level: float) -> None:
        """Add the row of a cell of races where it is missing."""
        key = self.key(part, metric, level)
        if finished(self.out, key):
            return
        orders = np.arange(self.races) + 10_000 * list(PARTS).index(part)
        trials = [self.race(part, metric, level, int(order)) for order in orders]
        facts = {"candidates": len(self.met(part)[1].widths)}
        row: dict[str, Any] = {**key, **facts, **summary(trials, metric), "torch": torch.__version__, **provenance()}
        append_row(self.out, row)
        print(part, metric, level, row["fewer_passes"], row["regret_95%"], file=sys.stderr, flush=True)

    def chosen(self) -> float:
        """The level that takes the fewest batches among those within the tolerance, on the search that chooses."""
        keys = [self.key("choosing", "accuracy", level) for level in self.levels]
        found = [row for key in keys for row in rows(self.out) if key.items() <= row.items()]
        good = [row for row in found if float(row["regret_95%"]) <= TOLERANCE]
        return float(min(good or found[:1], key=lambda row: float(row["effort"]))["level"])


def summary(trials: Sequence[dict[str, float]], metric: str) -> dict[str, str]:
    """Columns of a row."""
    table = {name: np.array([trial[name] for trial in trials]) for name in trials[0]}
    digits = ".3f" if metric == "accuracy" else ".5f"
    regret = table["regret"]
    quantiles = {f"regret_{share}%": f"{np.quantile(regret, share / 100):{digits}}" for share in (50, 95, 100)}
    return {
        "effort": f"{table['effort'].mean():.4f}",
        "fewer_passes": f"{1 / table['effort'].mean():.2f}",
        "fewer_passes_last_generation": f"{1 / table['effort_last'].mean():.2f}",
        "stopped": f"{table['stopped'].mean():.3f}",
        "regret_mean": f"{regret.mean():{digits}}",
        **quantiles,
        f"regret_within_{TOLERANCE}": f"{(regret <= TOLERANCE).mean():.3f}",
        "front_lost_mean": f"{table['front_lost'].mean():.4f}",
    }


def cells(study: Study) -> Iterator[tuple[str, str, float]]:
    """Cells of races in order: those that choose the level, those that judge it, and both together."""
    for level in study.levels:
        yield "choosing", "accuracy", level
    chosen = study.chosen()
    yield from (("judging", metric, chosen) for metric in METRICS)
    yield from (("all", metric, chosen) for metric in METRICS)


def main(
    quick: Annotated[bool, typer.Option(help="A few tiny searches on digits, to see that all runs.")] = False,
    data: Annotated[str, typer.Option(help="Images, a name as of `bcnet search --data`.")] = DATA,
    runs: Annotated[Path, typer.Option(help="Folder of the supernet and the matrix.")] = RUNS,
    out: Annotated[Path, typer.Option(help="CSV of finished cells.")] = OUT,
    races: Annotated[int, typer.Option(help="Races of each cell.")] = Study.races,
    generations: Annotated[int, typer.Option(help="Of the search, 40 candidates each.")] = Study.generations,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = torch.get_num_threads(),
) -> None:
    """What early stopping saves and costs."""
    torch.set_num_threads(threads)
    study = Study(Laboratory(data, Training(), runs), out, races, generations=generations)
    if quick:
        lab = Laboratory("digits", _QUICK, runs.with_name(f"quick_{runs.name}"), score_batch_size=12)
        out = out.with_name(f"quick_{out.name}")
        study = Study(lab, out, races=3, levels=(0.05, 0.4), population=6, generations=3, parents=2)
    for cell in cells(study):
        study.finish(*cell)
    print(f"chosen level: {study.chosen():g}")


if __name__ == "__main__":
    typer.run(main)
