"""The paper's tables and figures, run again: `python -m studies.paper table3 --scale paper`.

A study is a list of cells, one row of `results/paper/STUDY-SCALE.csv` each, with the picture of all finished rows
beside it. Cells that are in the file are not run again; supernets, searches and trained networks are run directories
below `--runs`, shared between all studies. A cell that fails leaves a log, the others go on, and the exit code is 1.

    python -m studies.paper --list                                  the studies
    python -m studies.paper table1 --list                           the cells of one, and which are finished
    python -m studies.paper table1 --only network=ResNet50 --only budget=2000000000 --imagenet DIR
    python -m studies.paper figure3 --scale digits --seeds 3        a small network stands in (see `networks`)
    python -m studies.paper table4 --quick                          one cell of each kind, in seconds

In pieces, on a machine that is there for minutes at a time: `--minutes 9` stops then, whatever is at hand, and the same
command goes on from there. `--list` says what every cell may take beside what it took (see `times`), and how large the
runs are: to go on elsewhere, take the two folders `--runs` and `--results` along.

    python -m studies.paper table3 --scale paper --device cuda --minutes 9
    python -m studies.paper table3 --scale paper --device cuda --list
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer

from studies.paper.jobs import Job
from studies.paper.networks import SCALES
from studies.paper.tables import STUDIES, work_of
from studies.paper.times import pieces, speed_of
from studies.paper.workshop import Workshop
from studies.shared.cells import Cell, matching, run_cells
from studies.shared.choices import check_known
from studies.shared.deadline import Deadline, TimeIsOver
from studies.shared.provenance import ROOT, finished, rows, rows_of
from studies.shared.short_training import CIFAR10
from studies.shared.torchvision_here import let_torchvision_import

RESULTS = ROOT / "results" / "paper"
RUNS = ROOT / "runs" / "paper"
_CIFAR10 = f"parquet:{CIFAR10}" if CIFAR10.is_dir() else "cifar10"


def main(
    study: Annotated[str, typer.Argument(help=f"One of {', '.join(STUDIES)}.")] = "",
    scale: Annotated[str, typer.Option(help=f"One of {', '.join(SCALES)}.")] = "paper",
    only: Annotated[list[str] | None, typer.Option(help="COLUMN=VALUE of the cells to run; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(help="Repetitions of every cell, from seed 0 on.")] = 1,
    quick: Annotated[bool, typer.Option(help="One cell of each kind at the scale `quick`.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show studies or cells; run nothing.")] = False,
    imagenet: Annotated[Path, typer.Option(help="Folder with train/ and val/.")] = Path("data/imagenet"),
    cifar10: Annotated[str, typer.Option(help="As of `bcnet search --data`.")] = _CIFAR10,
    runs: Annotated[Path, typer.Option(help="Folder of run directories and logs.")] = RUNS,
    results: Annotated[Path, typer.Option(help="Folder of CSV files and pictures.")] = RESULTS,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the best there is.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after so many; the same command goes on.")] = None,
) -> None:
    """Run a table or figure of the paper."""
    if not study:
        return _show_studies()
    check_known("a study", [study], STUDIES)
    check_known("a scale", [scale], SCALES)
    chosen = SCALES["quick" if quick else scale]
    if chosen.stand_in is None:
        let_torchvision_import()
    sources = {"imagenet": f"imagenet:{imagenet}", "cifar10": cifar10, "digits": "digits"}
    deadline = None if minutes is None else Deadline.after(minutes)
    workshop = Workshop(chosen, runs / chosen.name, sources, device, threads, deadline)
    work = work_of(STUDIES[study], workshop, seeds=seeds, one_of_each=quick)
    out = results / f"{study}-{chosen.name}.csv"
    try:
        wanted = matching([cell for cell, _ in work], dict(_pair(text) for text in only or ()))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if listed:
        return _show_cells([(cell, job) for cell, job in work if cell in wanted], out, workshop)
    failed: list[Cell] = []
    try:
        failed = run_cells(wanted, out, runs / "logs")
    except TimeIsOver:
        left = sum(not finished(out, cell.text_key) for cell in wanted)
        print(f"{minutes:g} minutes are over, and {left} cells are left: the same command goes on", file=sys.stderr)
    if out.is_file():
        STUDIES[study].show(rows(out), out.with_suffix(".svg"))
        print(f"{len(rows(out))} rows in {out}, drawn in {out.with_suffix('.svg')}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _pair(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--only is COLUMN=VALUE; got {text!r}: --list shows the columns")
    return column, value


def _show_studies() -> None:
    for name, study in STUDIES.items():
        print(f"{name:9} {study.title}: {', '.join(f'{count} {what}' for what, count in study.work.items())}")


def _show_cells(work: Sequence[tuple[Cell, Job]], out: Path, workshop: Workshop) -> None:
    """Each cell with what its runs may take and took; those that other cells share are told where they come first."""
    device = workshop.device or ("cuda" if torch.cuda.is_available() else "cpu")
    met: set[Path] = set()
    for cell, job in work:
        row = next(iter(rows_of(out, cell.text_key)), None)
        print("done" if row else "    ", cell.name)
        widths = None if row is None else tuple(map(int, row["widths"].split()))
        speed = speed_of(workshop.scale.network(job.network), device)
        new = [p for p in pieces(job, workshop, widths, speed) if p.run is None or p.run not in met]
        met |= {piece.run for piece in new if piece.run is not None}
        for piece in new:
            about = "unknown" if piece.expected is None else f"{piece.expected:,.0f} s"
            taken = "" if piece.taken is None else f", took {piece.taken:,.0f} s"
            print(f"         {piece.what}: estimated {about}{taken}")
    if any(speed_of(workshop.scale.network(job.network), device) is None for _, job in work):
        print('No estimate without `python -m benchmarks.speed_gpu --only "gpu training"` on this device.')
    files = [file for file in workshop.runs.rglob("*") if file.is_file()]
    print(f"{len(files)} files of {sum(file.stat().st_size for file in files) / 1e6:,.1f} MB in {workshop.runs}")


if __name__ == "__main__":
    typer.run(main)
