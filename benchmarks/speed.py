"""How fast bcnet is: everything timed against its rivals in one run, a row of `results/speed.csv` for each figure.

    python benchmarks/speed.py [--quick] [--threads 2] [--only steps]

Steps, scoring, counting, search and memory. What is compared takes turns; a figure is a median, with its quartiles.
With one thread the clock is CPU time, with more it is wall time (`speed_turns`). `waiting` is the share of the time
that the process was ready to compute and had no core, `load` the machine's at the end: a run with much of either says
what other work left. Cells that a file has rows of are not measured again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "studies"))  # for the columns that say where a row comes from
import speed_counting  # noqa: E402
import speed_memory  # noqa: E402
import speed_scoring  # noqa: E402
import speed_search  # noqa: E402
import speed_steps  # noqa: E402
from provenance import append_row, finished, provenance  # noqa: E402
from speed_turns import Figure, Pace, Waiting, clock  # noqa: E402
from speed_workloads import Workload  # noqa: E402
from torchvision_here import let_torchvision_import  # noqa: E402

from bcnet.pipeline.allocator import keep_memory  # noqa: E402
from bcnet.pipeline.machine import keep_primitives, usual_threads  # noqa: E402

OUTPUT = ROOT / "benchmarks" / "results" / "speed.csv"
END = "end of cell"


@dataclass(frozen=True)
class Cell:
    """Figures of one workload that are measured together."""

    section: str
    work: Workload
    figures: Callable[[], Iterable[Figure]]


def cells(quick: bool) -> Iterator[Cell]:
    """All of them, the quick ones first."""
    if quick:
        tiny = Workload("resnet_digits", 8, 4)
        brief = Pace(0, 2, 2)
        yield Cell("counting", tiny, lambda: speed_counting.figures(tiny, brief))
        yield Cell("steps", tiny, lambda: speed_steps.figures(tiny, brief))
        yield Cell("scoring", tiny, lambda: speed_scoring.figures(tiny, brief))
        yield Cell("search", tiny, lambda: speed_search.figures(tiny, 2))
        yield Cell("free search", tiny, lambda: speed_search.free_figures(tiny, 3))
        yield Cell("memory", tiny, lambda: speed_memory.figures(tiny, 2))
        return
    resnet20, resnet50 = Workload("resnet20", 32, 128), Workload("torchvision:resnet50", 224, 8)
    for work in (resnet20, resnet50):
        yield Cell("counting", work, lambda work=work: speed_counting.figures(work, Pace(5)))
        yield Cell("steps", work, lambda work=work: speed_steps.figures(work, Pace(90, 5)))
        yield Cell("scoring", work, lambda work=work: speed_scoring.figures(work, Pace(30, 5)))
        yield Cell("memory", work, lambda work=work: speed_memory.figures(work, 9))
    few = Workload("resnet20", 32, 64)
    yield Cell("search", few, lambda: speed_search.figures(few, 50))
    yield Cell("free search", few, lambda: speed_search.free_figures(few, 50))


def measured(cell: Cell, out: Path) -> None:
    """Measure a cell, show it, and append its rows; the last one says that it is finished."""
    waiting = Waiting()
    about = {"section": cell.section, "network": cell.work.network, "configuration": str(cell.work)}
    threads = {"threads": torch.get_num_threads(), "clock": clock()}
    for figure in [*cell.figures(), Figure.single(END, 1, "")]:
        spread = {key: f"{value:.5g}" for key, value in (("low", figure.low), ("high", figure.high))}
        row = {"figure": figure.name, "value": f"{figure.value:.5g}", **spread, "unit": figure.unit}
        machine = {"load": f"{os.getloadavg()[0]:.1f}", "waiting": f"{waiting.share():.2f}", "torch": torch.__version__}
        append_row(out, about | row | {"rounds": figure.rounds, **threads, "seed": 0} | machine | provenance())
        if figure.name != END:
            print(*about.values(), "|", figure.name, f"{figure.value:.4g}", figure.unit, sep="  ", flush=True)


def main(
    quick: Annotated[bool, typer.Option(help="Tiny networks, two rounds: whether everything runs.")] = False,
    threads: Annotated[int | None, typer.Option(help="CPU threads; by default those that a run takes.")] = None,
    only: Annotated[str | None, typer.Option(help="One section.")] = None,
    out: Annotated[Path, typer.Option(help="CSV to append to; finished cells are left out.")] = OUTPUT,
) -> None:
    """Measure what is not in the file yet."""
    keep_primitives()  # both as the command line of bcnet does
    keep_memory()
    let_torchvision_import()
    torch.set_num_threads(threads or usual_threads())
    torch.manual_seed(0)
    for cell in cells(quick):
        known = {"section": cell.section, "network": cell.work.network, "configuration": str(cell.work), "figure": END}
        if only in (None, cell.section) and not finished(out, known | {"threads": str(torch.get_num_threads())}):
            measured(cell, out)


if __name__ == "__main__":
    typer.run(main)
