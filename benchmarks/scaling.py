"""How training and search scale from one process to several, one thread each: seconds per step and per candidate.

    torchrun --nproc-per-node 2 -m benchmarks.scaling

Three kinds of runs take turns within one start, so that all meet the same machine: one process alone, while the
others wait without computing; all together; and all apart, each on a share of the work at the same time as the
others, but without a word to them. A row of `results/scaling.csv` gives the median over the runs together and the
speed-up against one process. `ceiling` is that of the runs apart: the most that this machine, whose cores share
caches and the way to memory, gives to work divided among them. `waiting` is the share of the time that a process was
ready to compute and had no core (the kernel's run-queue delay): above 0 other work was on the machine, and the
speed-up is lower than on one of its own. `undisturbed_speedup` takes that time off each run before the medians are
compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from bcnet.data import Augmentation, DataSet, TrainingBatches, fixed_batches
from bcnet.distributed import ProcessGroup, join_processes
from bcnet.machine.allocator import keep_memory
from bcnet.machine.timing import Stopwatch
from bcnet.models import create
from bcnet.searchers import EvaluationStore, Evolution, SupernetEvaluator, search_widths
from bcnet.space import Budget, WidthSpace
from bcnet.supernet import Supernet
from bcnet.train import Complementary, Recipe, SupernetLearner, train
from studies.shared.provenance import append_row, provenance

RESULTS = Path(__file__).parent / "results" / "scaling.csv"


@dataclass(frozen=True)
class Size:
    """How much one run does."""

    model: str = "resnet20"
    pixels: int = 32
    batch: int = 128
    steps: int = 16
    population: int = 40
    generations: int = 2
    images: int = 128
    rounds: int = 5


QUICK = Size("resnet_digits", 8, 32, 3, 4, 2, 64, 1)
ALONE = "alone"
TOGETHER = "together"
APART = "apart"


@dataclass(frozen=True)
class Timed:
    """One run: seconds for each unit of work, and how many of them the slowest process was ready but had no core."""

    seconds: float
    delayed: float


class Work:
    """A supernet with random images to train on and to score by."""

    def __init__(self, size: Size) -> None:
        self.size = size
        generator = torch.Generator().manual_seed(0)
        count = size.batch * size.steps + size.images
        pixels = torch.randint(256, (count, 3, size.pixels, size.pixels), generator=generator, dtype=torch.uint8)
        labels = torch.arange(count) % 10
        data = DataSet.from_tensors((pixels, labels), (pixels[:10], labels[:10]), augmentation=Augmentation(4, True))
        torch.manual_seed(0)
        model = create(size.model, 10, in_channels=3, image_size=size.pixels).build()
        self.space = WidthSpace.trace(model, data.normaliser(pixels[:2]), multiple_of=1)
        self.supernet = Supernet(model.to(memory_format=torch.channels_last), self.space)
        self.data = data
        scoring = data.train.subset(range(size.batch * size.steps, count))
        self.score = SupernetEvaluator(self.supernet, fixed_batches(scoring, size.images, data.normaliser))

    def train(self, world: ProcessGroup, run: int, share: int = 1) -> Timed:
        """Some steps on a `share`-th of the batch with the same widths whatever the world, after one not counted."""
        batch = self.size.batch // share
        images = self.data.train.subset(range(batch * self.size.steps))
        watches: list[Stopwatch] = []
        train(
            SupernetLearner(self.supernet, Complementary()),
            TrainingBatches(images, batch, self.data.normaliser, self.data.augmentation),
            Recipe(lr=0.01, batch_size=batch, epochs=2, precision="fp32"),
            seed=run,
            on_step=lambda progress: watches.append(Stopwatch()) if progress.step == 1 else None,
            world=world,
        )
        return _timed(world, watches[0], 2 * self.size.steps - 1)

    def search(self, world: ProcessGroup, run: int, share: int = 1) -> Timed:
        """An evolution at half the multiply-adds, stored by rank 0 as in a real search.

        Apart from others each process scores all candidates: one takes a `share`-th of the time for the common work.
        """
        with TemporaryDirectory() as folder:
            path = Path(folder) / "evaluations.sqlite" if world.is_rank_zero else ":memory:"
            with EvaluationStore(path, self.space) as store:
                watch = Stopwatch()
                found = search_widths(
                    self.space,
                    self.score,
                    Budget(macs=0.5),
                    searcher=Evolution(self.size.population, self.size.generations),
                    seed=run,
                    store=store,
                    mapper=world.map,
                )
                return _timed(world, watch, share * len(found.evaluations))


def _timed(world: ProcessGroup, watch: Stopwatch, units: int) -> Timed:
    wall, delayed = max(world.gather(watch.read()))
    return Timed(wall / units, delayed / units)


def alternated(
    work: Callable[[ProcessGroup, int, int], Timed], world: ProcessGroup, rounds: int
) -> Iterator[tuple[str, Timed]]:
    """Runs of the three kinds in turns, each round beginning with the next kind."""
    kinds = (ALONE, TOGETHER, APART)
    for run in range(rounds):
        for turn in range(len(kinds)):
            kind = kinds[(run + turn) % len(kinds)]
            if kind == TOGETHER:
                yield kind, work(world, run, 1)
            elif kind == ALONE:
                yield kind, Timed(**world.on_rank_zero(lambda run=run: vars(work(ProcessGroup(), run, 1))))  # type: ignore[misc]
            else:
                world.gather(None)  # all begin at the same time
                every = world.gather(vars(work(ProcessGroup(), run, world.size)))
                yield kind, max((Timed(**timed) for timed in every), key=lambda timed: timed.seconds)


def rows(
    name: str, unit: str, world: ProcessGroup, runs: list[tuple[str, Timed]], size: Size
) -> Iterator[dict[str, object]]:
    """The medians of one process and of all together, as rows."""
    median = {
        kind: {
            "seconds": statistics.median(t.seconds for of, t in runs if of == kind),
            "undisturbed": statistics.median(t.seconds - t.delayed for of, t in runs if of == kind),
            "waiting": statistics.median(t.delayed / t.seconds for of, t in runs if of == kind),
        }
        for kind in (ALONE, TOGETHER, APART)
    }
    for kind, count in ((ALONE, 1), (TOGETHER, world.size)):
        of_kind = median[kind]
        seconds = [timed.seconds for of, timed in runs if of == kind]
        yield {
            "benchmark": name,
            "configuration": f"{size.model} {size.pixels}x{size.pixels}, batch {size.batch}, {size.images} to score by",
            "processes": count,
            "threads": torch.get_num_threads(),
            "unit": unit,
            "seconds": round(of_kind["seconds"], 4),
            "fastest": round(min(seconds), 4),
            "slowest": round(max(seconds), 4),
            "runs": len(seconds),
            "speedup": round(median[ALONE]["seconds"] / of_kind["seconds"], 3),
            "ceiling": 1.0 if kind == ALONE else round(median[ALONE]["seconds"] / median[APART]["seconds"], 3),
            "waiting": round(of_kind["waiting"], 3),
            "undisturbed_speedup": round(median[ALONE]["undisturbed"] / of_kind["undisturbed"], 3),
            "load": round(os.getloadavg()[0], 2),
            "seed": 0,
            "torch": torch.__version__,
            **provenance(),
        }


def main() -> None:
    """Measure, show, and append the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tiny network, one run of each: whether it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="CSV to append to")
    options = parser.parse_args()
    keep_memory()  # as the command line does
    torch.set_num_threads(1)
    size = QUICK if options.quick else Size()
    work = Work(size)
    with join_processes("cpu") as world:
        if world.size == 1:
            parser.error("start it with torchrun --nproc-per-node 2: one process alone has nothing to be compared with")
        for name, unit, run in (("training", "step", work.train), ("search", "candidate", work.search)):
            runs = list(alternated(run, world, size.rounds))
            for row in rows(name, unit, world, runs, size) if world.is_rank_zero else ():
                print(", ".join(f"{key} {row[key]}" for key in ("benchmark", "processes", "seconds", "speedup")))
                append_row(options.out, row)


if __name__ == "__main__":
    main()
