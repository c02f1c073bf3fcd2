"""Which supernet ranks widths best, by which side and by which score? Judged by 16,384 trained networks.

Supernets of Channel-Bench-Macro's MobileNet are trained on CIFAR-10 at equal cost (see `supernets`): BC with
complement, BC with BCNetV2's, BC without, UA, UA with complement, and UA and BC by the sandwich rule with in-place
distillation. Each scores the same widths, drawn uniformly from the table without repetition, on images held out of the
training images: by accuracy and by negative loss, by LEFT, and where it trains RIGHT too, by that and by the mean of
both. They are held against the mean accuracy of the table's three runs:

- Kendall's tau, Spearman's rho, and Kendall's tau after regressing log MACs out of both;
- regret: the best accuracy of the table among the scored widths within 25, 50 and 75 % of the MACs, minus that of the
  widths which the score would choose there (its intervals are rows of `studies.ranking.score_model`).

The row "macs" needs no supernet: more MACs, better score. Differences in tau are taken on the same resampled widths:
between supernets, and where they are trained otherwise than usual (`--epochs`, `--image-size`), to the usual ones too.
Finished cells are rows of the CSV files and are never computed again; a cell that was stopped goes on where it was.

    python -m studies.ranking [--quick] [--seeds 1] [--epochs 4] [--image-size 16] [--images 2048] [--device cuda]
        [--threads 2] [--runs runs/ranking]
        [--table FILE --network NAME]    # another table of the benchmark; its rows are files of their own

writes `results/ranking.csv` with a picture of the usual training beside it, `ranking_scores.csv` and
`ranking_differences.csv`.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from bcnet.space import Side, Widths
from studies.ranking.channel_bench_macro import BUDGETS, MOBILENET, Table, of_network
from studies.ranking.channel_bench_macro import DATA as TABLE
from studies.ranking.figure import draw
from studies.ranking.scores import MACS, METRICS, Contender, Scored, ScoreFile
from studies.ranking.statistics import Estimate, kendall, kendall_given, mean_kendall, regret, resamples, spearman
from studies.ranking.supernets import PATHS_PER_STEP, SUPERNETS, Cell, Score, Scoring, Training, Workload
from studies.shared.provenance import ROOT, append_row, finished, provenance

DATA = f"parquet:{ROOT.parent / 'shared' / 'data' / 'cifar10'}"
OUT = ROOT / "results" / "ranking.csv"
RUNS = ROOT / "runs" / "ranking"
QUICK = (Training(image_size=8, epochs=1, batch_size=128), Scoring(widths=12, images=64, score_batch_size=32))
OWN_SIDE = {name: "both" if len(make().sides) == 2 else "left" for name, make in SUPERNETS.items()}
SIDES_OF = {"both": ("left", "right", "both"), "left": ("left",)}  # an untrained side scores nothing


@dataclass(frozen=True)
class Study:
    """What all cells have in common, and the files they end in."""

    table: Table
    training: Training
    scoring: Scoring
    data: str
    runs: Path
    out: Path
    device: str
    threads: int
    network: str = MOBILENET

    @functools.cached_property
    def workload(self) -> Workload:
        """The data, loaded where a cell is not finished."""
        torch.set_num_threads(self.threads)
        return Workload.open(self.data, self.training, self.scoring, self.device, self.network)

    @functools.cached_property
    def sample(self) -> list[Widths]:
        """The widths scored: uniform, without repetition. A larger sample begins with a smaller one."""
        everything = list(self.table.rows)
        order = np.random.default_rng(0).permutation(len(everything))
        return [everything[row] for row in order[: self.scoring.widths]]

    @property
    def scores(self) -> ScoreFile:
        """Every score of the finished cells."""
        return ScoreFile(self.out.with_name(f"{self.out.stem}_scores.csv"))

    @property
    def differences(self) -> Path:
        """The differences in tau."""
        return self.out.with_name(f"{self.out.stem}_differences.csv")

    @functools.cached_property
    def settings(self) -> dict[str, object]:
        """The columns that tell this study's cells from those of other settings."""
        name = self.data.rpartition("/")[2]
        return {"data": name, **dataclasses.asdict(self.training), **dataclasses.asdict(self.scoring)}

    def key(self, supernet: str, seed: int | str) -> dict[str, object]:
        """The columns that name a cell."""
        return {"supernet": supernet, "seed": seed, **self.settings}

    def row_key(self, contender: Contender, seed: int | str) -> dict[str, str]:
        """The columns that name a row of `out`."""
        key = {**self.key(contender.supernet, seed), "side": contender.side, "score": contender.metric}
        return {name: str(value) for name, value in key.items()}

    @property
    def text_settings(self) -> dict[str, str]:
        """The settings as a CSV file has them."""
        return {name: str(value) for name, value in self.settings.items()}

    def cell(self, supernet: str, seed: int | str) -> Cell:
        """The cell's training and scores."""
        return Cell(supernet, seed, self.training, str(self.settings["data"]), self.runs)

    def scored(self, supernet: str, seed: int) -> Scored:
        """The cell's scores: of the file, and else of the supernet, trained first where it is not."""
        if (stored := self.stored(supernet, seed)) is not None:
            return stored
        scores = self.cell(supernet, seed).scores(self.workload, self.sample)
        self.scores.write(self.key(supernet, seed), self.score_rows(scores))
        stored = self.stored(supernet, seed)
        assert stored is not None
        return stored

    def stored(self, supernet: str, seed: int) -> Scored | None:
        """The cell's scores where it has been scored."""
        return self.scores.read(self.key(supernet, seed))

    @property
    def reference(self) -> Scored:
        """The widths of the sample without any supernet's scores."""
        rows = [self.table.rows[widths] for widths in self.sample]
        return Scored({"macs": self.table.macs[rows].astype(float), "table_accuracy": self.table.score("exact")[rows]})

    def score_rows(self, scores: Mapping[tuple[Widths, Side], Score]) -> list[dict[str, object]]:
        """A row per widths."""
        truth = self.table.score("exact")

        def of_side(widths: Widths, side: Side, metric: str) -> object:
            return round(getattr(scores[widths, side], metric), 6) if (widths, side) in scores else ""

        return [
            {
                "architecture": " ".join(map(str, widths)),
                "macs": int(self.table.macs[self.table.rows[widths]]),
                "table_accuracy": round(float(truth[self.table.rows[widths]]), 4),
                **{f"{side.value}_{metric}": of_side(widths, side, metric) for metric in METRICS for side in Side},
            }
            for widths in self.sample
        ]


def figures(study: Study, scored: Scored, contender: Contender) -> dict[str, object]:
    """How well a contender's scores rank, and what its choices cost."""
    score = scored.score(contender)
    truth = scored.accuracy
    macs = scored.macs
    counts = resamples(len(truth))
    columns = Estimate.of(functools.partial(kendall, score, truth), counts).columns("tau")
    columns |= Estimate.of(functools.partial(spearman, score, truth), counts).columns("rho")
    if contender == MACS:
        columns |= dict.fromkeys(("tau_given_macs", "tau_given_macs_low", "tau_given_macs_high"), "")
    else:
        given = functools.partial(kendall_given, score, truth, np.log(macs))
        columns |= Estimate.of(given, counts).columns("tau_given_macs")
    full = study.table.space.reference.macs
    once = np.ones((1, len(truth)))
    return columns | {f"regret_{b:.0%}": f"{regret(score, truth, macs, b * full, once)[0]:.3f}" for b in BUDGETS}


def finish_cell(study: Study, supernet: str, seed: int) -> None:
    """Add the cell's missing rows."""
    contenders = [Contender(supernet, side, metric) for side in SIDES_OF[OWN_SIDE[supernet]] for metric in METRICS]
    missing = [c for c in contenders if not finished(study.out, study.row_key(c, seed))]
    if missing:
        add_rows(study, missing, seed, study.scored(supernet, seed))


def finish_reference(study: Study) -> None:
    """Add the row of the MACs."""
    if not finished(study.out, study.row_key(MACS, "")):
        add_rows(study, [MACS], "", study.reference)


def add_rows(study: Study, contenders: list[Contender], seed: int | str, scored: Scored) -> None:
    """Add a row for each contender to the study's CSV."""
    seconds = study.cell(contenders[0].supernet, seed).seconds()
    for contender in contenders:
        row = {
            **study.row_key(contender, seed),
            "paths_per_step": "" if contender == MACS else PATHS_PER_STEP,
            **figures(study, scored, contender),
            **{f"{stage}_seconds": seconds.get(stage, "") for stage in ("training", "scoring")},
            "device": study.device,
            "threads": study.threads,
            "torch": torch.__version__,
            **provenance(),
        }
        append_row(study.out, row)
        print(contender, "tau", row["tau"], row["tau_low"], row["tau_high"], file=sys.stderr, flush=True)


def pairs() -> list[tuple[Contender, Contender]]:
    """The comparisons: between supernets, each by the sides it trains; with the MACs; of scores; of sides."""

    def own(supernet: str, metric: str) -> Contender:
        return Contender(supernet, OWN_SIDE[supernet], metric)

    between = (
        ("complementary", "unilateral"),
        ("complementary", "bilateral"),
        ("complementary-bounded", "complementary"),
        ("complementary-bounded", "bilateral"),
        ("bilateral", "unilateral"),
        ("unilateral", "unilateral-complementary"),
        ("sandwich", "unilateral"),
        ("bilateral-sandwich", "complementary"),
        ("bilateral-sandwich", "bilateral"),
        ("bilateral-sandwich", "sandwich"),
    )
    found = [(own(a, metric), own(b, metric)) for metric in METRICS for a, b in between]
    found += [(own(supernet, metric), MACS) for metric in METRICS for supernet in SUPERNETS]
    found += [(own(supernet, "loss"), own(supernet, "accuracy")) for supernet in SUPERNETS]
    two_sided = [name for name, side in OWN_SIDE.items() if side == "both"]
    for supernet in two_sided:
        for metric in METRICS:
            found += [(own(supernet, metric), Contender(supernet, side, metric)) for side in ("left", "right")]
    return found


def finish_differences(study: Study, seeds: int) -> None:
    """Add the missing differences in tau between finished cells, the mean over all seeds.

    Between those of `pairs`, and between each supernet and itself as it is usually trained, where that is not so here.
    """
    usual = dataclasses.replace(study, training=Training(), scoring=Scoring(study.scoring.widths))
    found = [(first, study, second, study, str(second)) for first, second in pairs()]
    if usual.training != study.training:
        how = f"{usual.training.epochs} epochs at {usual.training.image_size}x{usual.training.image_size}"
        own = [Contender(supernet, OWN_SIDE[supernet], metric) for metric in METRICS for supernet in SUPERNETS]
        found += [(contender, study, contender, usual, f"{contender}, {how}") for contender in own]
    for first, here, second, there, name in found:
        key = {"first": str(first), "second": name, "seeds": str(seeds), **study.text_settings}
        if finished(study.differences, key):
            continue
        a, b = (
            [origin.stored(c.supernet if c != MACS else first.supernet, seed) for seed in range(seeds)]
            for c, origin in ((first, here), (second, there))
        )
        scored = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
        if len(scored) < seeds:
            continue
        truth = scored[0][0].accuracy
        mine = [x.score(first) for x, _ in scored]
        other = [y.score(second) for _, y in scored]
        difference = Estimate.of(
            lambda w, a=mine, b=other, y=truth: mean_kendall(a, y, w) - mean_kendall(b, y, w), resamples(len(truth))
        )
        append_row(study.differences, {**key, **difference.columns("tau_difference"), **provenance()})


def main(
    quick: Annotated[bool, typer.Option(help="A few steps on scikit-learn's digits, to see that all runs.")] = False,
    data: Annotated[str, typer.Option(help="Images to train and score on, a name as of `bcnet search --data`.")] = DATA,
    table: Annotated[Path, typer.Option(help="A table of Channel-Bench-Macro.")] = TABLE,
    network: Annotated[str, typer.Option(help="Its network: mobilenet, resnet, or a name of ours.")] = MOBILENET,
    runs: Annotated[Path, typer.Option(help="Folder of checkpoints, supernets, records and scores.")] = RUNS,
    out: Annotated[Path, typer.Option(help="CSV of finished cells; the rest goes beside it.")] = OUT,
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(SUPERNETS)}; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(help="Trainings of each supernet.")] = 1,
    epochs: Annotated[int, typer.Option(help="Of each supernet.")] = Training.epochs,
    image_size: Annotated[int, typer.Option(help="Pixels.")] = Training.image_size,
    batch_size: Annotated[int, typer.Option(help="Images per step.")] = Training.batch_size,
    widths: Annotated[int, typer.Option(help="Widths scored.")] = Scoring.widths,
    images: Annotated[int, typer.Option(help="Images they are scored on.")] = Scoring.images,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads.")] = torch.get_num_threads(),
) -> None:
    """How well supernets rank the networks of Channel-Bench-Macro."""
    if not table.is_file():
        raise SystemExit(f"the table {table} is not there: get Channel-Bench-Macro's mobilenet.csv, or give --table")
    training = Training(image_size=image_size, epochs=epochs, batch_size=batch_size)
    scoring = Scoring(widths, images)
    out = of_network(out, OUT, network)
    runs = of_network(runs, RUNS, network)
    if quick:
        data = "digits"
        out = out.with_name(f"quick_{out.name}")
        runs = runs.with_name(f"quick_{runs.name}")
        training, scoring = QUICK
    study = Study(Table.read(table, network), training, scoring, data, runs, out, device, threads, network)
    for seed in range(seeds):
        for supernet in only or SUPERNETS:
            finish_cell(study, supernet, seed)
        finish_differences(study, seed + 1)
    finish_reference(study)
    if quick or training == Training():
        draw(study.out, study.text_settings)


if __name__ == "__main__":
    typer.run(main)
