"""The paper's tables and figures, run again: `python -m studies.paper table3 --scale paper`.

A study is a list of cells, one row of `results/paper/STUDY-SCALE.csv` each, with the picture of all finished rows
beside it. Cells that are in the file are not run again; supernets, searches and trained networks are run directories
below `--runs`, shared between all studies. A cell that fails leaves a log, the others go on, and the exit code is 1.

    python -m studies.paper --list                                  the studies
    python -m studies.paper table1 --list                           the cells of one, and which are finished
    python -m studies.paper table1 --only network=ResNet50 --only budget=2000000000 --imagenet DIR
    python -m studies.paper figure3 --scale digits --seeds 3        a small network stands in (see `networks`)
    python -m studies.paper table4 --quick                          one cell of each kind, in seconds
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from studies.paper.networks import SCALES
from studies.paper.tables import STUDIES, cells_of
from studies.paper.workshop import Workshop
from studies.shared.cells import Cell, matching, run_cells
from studies.shared.choices import check_known
from studies.shared.provenance import ROOT, finished, rows
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
    workshop = Workshop(chosen, runs / chosen.name, sources, device, threads)
    cells = cells_of(STUDIES[study], workshop, seeds=seeds, one_of_each=quick)
    out = results / f"{study}-{chosen.name}.csv"
    try:
        wanted = matching(cells, dict(_pair(text) for text in only or ()))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if listed:
        return _show_cells(wanted, out)
    failed = run_cells(wanted, out, runs / "logs")
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


def _show_cells(cells: Sequence[Cell], out: Path) -> None:
    for cell in cells:
        print("done" if finished(out, cell.text_key) else "    ", cell.name)


if __name__ == "__main__":
    typer.run(main)
