"""How fast bcnet is: everything timed against its rivals in one run, a row of `results/speed.csv` for each figure.

    python -m benchmarks.speed [--quick] [--threads 2] [--only steps]

Steps, scoring, counting, search, memory, images in files and peers; on a GPU it is `benchmarks.speed_gpu`.
What is compared takes turns; a figure is a median with quartiles. With one thread the clock is CPU time, with more it
is wall time (`speed_turns`). `waiting` is the share of the time that the process was ready to compute and had no core,
`load` the machine's at the end: a run with much of either says what other work left. Cells that a file has rows of are
not measured again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer

from bcnet.machine.allocator import keep_memory
from bcnet.machine.defaults import set_primitive_cache_capacity, usual_threads
from bcnet.machine.timing import Stopwatch
from benchmarks import (
    speed_counting,
    speed_images,
    speed_memory,
    speed_pairs,
    speed_peers,
    speed_profile,
    speed_scoring,
    speed_search,
    speed_steps,
)
from benchmarks.speed_turns import Figure, Pace, clock
from benchmarks.speed_workloads import Workload
from studies.shared.provenance import ROOT, append_row, finished, provenance
from studies.shared.torchvision_here import let_torchvision_import

OUTPUT = ROOT / "benchmarks" / "results" / "speed.csv"
END = "end of cell"


@dataclass(frozen=True)
class Cell:
    """Figures of one workload that are measured together."""

    section: str
    network: str
    configuration: str
    figures: Callable[[], Iterable[Figure]]
    device: str = "cpu"

    @property
    def key(self) -> dict[str, str]:
        """What its rows have in common."""
        return {"section": self.section, "network": self.network, "configuration": self.configuration}


RESNET20 = Workload("resnet20", 32, 128)
RESNET50 = Workload("torchvision:resnet50", 224, 8)
SCORED50 = Workload("torchvision:resnet50", 224, 32)
FEW = Workload("resnet20", 32, 128)  # images to score by
PAIRED = (
    Workload("vgg19_quarter", 16, 128),
    Workload("mobilenetv2", 32, 64),
    Workload("torchvision:mobilenet_v2", 224, 8),
    Workload("torchvision:resnet18", 224, 8),
    RESNET50,
    Workload("vgg19", 32, 32),
)
PHOTOGRAPHS = ((500, 375, 64), (2048, 1536, 12))  # width, height, how many; the first as ImageNet's


def cells() -> Iterator[Cell]:
    """What has a target comes first, then how it grows: other networks, batches, numbers of candidates."""
    yield from of_network(RESNET20, Workload("resnet20", 32, 2048), seconds=50)
    yield from of_network(RESNET50, SCORED50, seconds=50)
    yield scoring(SCORED50, 16, Pace(0, 5))
    yield searched(FEW, 2000)
    yield from (profiled(work, 6) for work in (RESNET20, RESNET50))
    yield Cell("peers", "resnet20", f"{speed_peers.HELD_OUT} digits of 16x16", lambda: speed_peers.figures(1, 4))
    for width, height, count in PHOTOGRAPHS:
        yield images(width, height, count, Pace(20, 5))
    for network in ("torchvision:resnet18", "torchvision:mobilenet_v2"):
        yield from of_network(Workload(network, 224, 8), Workload(network, 224, 32), seconds=25)
    for work in PAIRED:
        yield paired(work, Pace(25, 5))
    for batch in (32, 512):
        yield stepped(Workload("resnet20", 32, batch), Pace(25, 5))
    for candidates in (500, 2000, 8000):
        yield searched_free(RESNET20, candidates)
    for work in (Workload("resnet56", 32, 2), Workload("torchvision:mobilenet_v2", 224, 2), RESNET50):
        yield searched_free(work, 2000)


def quick_cells() -> Iterator[Cell]:
    """Everything but the peers on a tiny network."""
    tiny = Workload("resnet_digits", 8, 4)
    yield from of_network(tiny, tiny, seconds=0)
    yield profiled(tiny, 1)
    yield paired(tiny, Pace(0, 2, 2))
    yield searched(tiny, 80)
    yield searched_free(tiny, 80)
    yield images(60, 40, 2, Pace(0, 2, 2))


def of_network(work: Workload, scored: Workload, *, seconds: float) -> Iterator[Cell]:
    """Counting, steps and memory of one workload, scoring of another."""
    brief = Pace(0, 2, 2)
    costed, least, remembered = (Pace(5), 5, 25) if seconds else (brief, 2, 3)
    yield Cell("counting", work.network, str(work), lambda: speed_counting.figures(work, costed))
    yield stepped(work, Pace(seconds, least))
    yield scoring(scored, 4, Pace(seconds / 2, least))
    yield Cell("memory", work.network, str(work), lambda: speed_memory.figures(work, remembered))


def stepped(work: Workload, pace: Pace) -> Cell:
    """Training steps."""
    return Cell("steps", work.network, str(work), lambda: speed_steps.figures(work, pace))


def paired(work: Workload, pace: Pace) -> Cell:
    """Training steps in pairs and by slices."""
    return Cell("pairs", work.network, str(work), lambda: speed_pairs.figures(work, pace))


def scoring(work: Workload, batches: int, pace: Pace) -> Cell:
    """Scoring of candidates on that many batches each."""
    return Cell("scoring", work.network, f"{batches} times {work}", lambda: speed_scoring.figures(work, batches, pace))


def profiled(work: Workload, steps: int) -> Cell:
    """Where the time of training steps goes."""
    return Cell("profile", work.network, str(work), lambda: speed_profile.figures(work, steps))


def searched(work: Workload, candidates: int) -> Cell:
    """A search whose scores come from a supernet."""
    configuration = f"{candidates} candidates, {work}"
    return Cell("search", work.network, configuration, lambda: speed_search.figures(work, candidates))


def searched_free(work: Workload, candidates: int) -> Cell:
    """A search whose scores cost nothing."""
    configuration = f"{candidates} candidates, {len(work.space.groups)} groups"
    return Cell("free search", work.network, configuration, lambda: speed_search.free_figures(work, candidates))


def images(width: int, height: int, count: int, pace: Pace) -> Cell:
    """Photographs in files to batches."""
    figures = partial(speed_images.figures, width, height, count, pace)
    return Cell("images", "none", f"JPEGs of {width}x{height}", figures)


def measured(cell: Cell, out: Path) -> None:
    """Measure a cell, show it, and append its rows; the last one says that it is finished."""
    watch = Stopwatch()
    threads = {"threads": torch.get_num_threads(), "clock": clock(cell.device)}
    for figure in [*cell.figures(), Figure.single(END, 1, "")]:
        spread = {key: f"{value:.5g}" for key, value in (("low", figure.low), ("high", figure.high))}
        row = {"figure": figure.name, "value": f"{figure.value:.5g}", **spread, "unit": figure.unit}
        machine = {
            "load": f"{os.getloadavg()[0]:.1f}",
            "waiting": f"{watch.waiting_share():.2f}",
            "torch": torch.__version__,
        }
        append_row(
            out, cell.key | row | {"rounds": figure.rounds, **threads, "seed": 0} | machine | hardware(cell.device)
        )
        if figure.name != END:
            print(*cell.key.values(), "|", figure.name, f"{figure.value:.4g}", figure.unit, sep="  ", flush=True)


def hardware(device: str) -> dict[str, str]:
    """Where a row comes from; the column of the processor names the GPU as well, where that has computed."""
    found = provenance()
    return found if device == "cpu" else found | {"cpu": f"{found['cpu']}, {torch.cuda.get_device_name(device)}"}


def main(
    quick: Annotated[bool, typer.Option(help="Tiny networks, two rounds: whether everything runs.")] = False,
    threads: Annotated[int | None, typer.Option(help="CPU threads; by default those that a run takes.")] = None,
    only: Annotated[str | None, typer.Option(help="One section.")] = None,
    out: Annotated[Path, typer.Option(help="CSV to append to; finished cells are left out.")] = OUTPUT,
) -> None:
    """Measure what is not in the file yet."""
    set_primitive_cache_capacity()  # both as the command line of bcnet does
    keep_memory()
    let_torchvision_import()
    torch.set_num_threads(threads or usual_threads())
    torch.manual_seed(0)
    for cell in quick_cells() if quick else cells():
        known = cell.key | {"figure": END, "threads": str(torch.get_num_threads())}
        if only in (None, cell.section) and not finished(out, known):
            try:
                measured(cell, out)
            except speed_peers.PeerError as error:
                print(f"{cell.section} are left out: {error}", file=sys.stderr)


if __name__ == "__main__":
    typer.run(main)
