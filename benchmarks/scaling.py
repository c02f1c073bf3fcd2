"""How training and search scale from one process to several, one thread each: seconds per step and per candidate.

    torchrun --nproc-per-node 2 benchmarks/scaling.py

Runs with one process and with all alternate within one start, so that both meet the same machine: while the first
process works alone, the others wait without computing. A row of `results/scaling.csv` gives the median over all runs
and the speed-up against one process. `waiting` is the share of the time that a process was ready to compute and had no
core (the kernel's run-queue delay): above 0 other work was on the machine, and the speed-up is lower than on one of its
own. `undisturbed_speedup` takes that time off each run before the medians are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from bcnet.data import Augmentation, DataSet, TrainingBatches, fixed_batches
from bcnet.distributed import World, joined
from bcnet.models import create
from bcnet.searchers import EvaluationStore, Evolution, SupernetEvaluator, search_widths
from bcnet.space import Budget, WidthSpace
from bcnet.supernet import Supernet
from bcnet.train import Complementary, Recipe, SupernetTrainee, train

sys.path.append(str(Path(__file__).parents[1] / "studies"))
from provenance import append_row, provenance

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


@dataclass(frozen=True)
class Timed:
    """One run: seconds for each unit of work, and how many of them the slowest process was ready but had no core."""

    seconds: float
    delayed: float


class Stopwatch:
    """Wall seconds, and seconds that the main thread, which does all the work, spent on the run queue."""

    def __init__(self) -> None:
        self._start = self._now()

    def _now(self) -> tuple[float, float]:
        schedstat = Path("/proc/self/schedstat")  # nanoseconds running, nanoseconds on the run queue, turns
        queued = int(schedstat.read_text().split()[1]) / 1e9 if schedstat.is_file() else 0.0
        return time.perf_counter(), queued

    def read(self) -> tuple[float, float]:
        """Both so far."""
        wall, queued = self._now()
        return wall - self._start[0], queued - self._start[1]


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
        self.space = WidthSpace.trace(model, data.normaliser(pixels[:2]))
        self.supernet = Supernet(model.to(memory_format=torch.channels_last), self.space)
        training = data.train.subset(range(size.batch * size.steps))
        self.batches = TrainingBatches(training, size.batch, data.normaliser, data.augmentation)
        scoring = data.train.subset(range(size.batch * size.steps, count))
        self.score = SupernetEvaluator(self.supernet, fixed_batches(scoring, size.images, data.normaliser))

    def train(self, world: World, run: int) -> Timed:
        """Some steps with the same widths whatever the world, after one that is not counted."""
        recipe = Recipe(lr=0.01, batch_size=self.size.batch, epochs=2, precision="fp32")
        watches: list[Stopwatch] = []
        train(
            SupernetTrainee(self.supernet, Complementary()),
            self.batches,
            recipe,
            seed=run,
            on_step=lambda progress: watches.append(Stopwatch()) if progress.step == 1 else None,
            world=world,
        )
        return _timed(world, watches[0], 2 * self.size.steps - 1)

    def search(self, world: World, run: int) -> Timed:
        """An evolution at half the multiply-adds, stored by the lead as in a real search."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "evaluations.sqlite" if world.leads else ":memory:"
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
                return _timed(world, watch, len(found.evaluations))


def _timed(world: World, watch: Stopwatch, units: int) -> Timed:
    wall, delayed = max(world.gathered(watch.read()))
    return Timed(wall / units, delayed / units)


def alternated(work: Callable[[World, int], Timed], world: World, rounds: int) -> Iterator[tuple[int, Timed]]:
    """Runs of the first process alone and of all, in turns; each round the other way about."""
    for run in range(rounds):
        for together in (run % 2 == 0, run % 2 == 1):
            if together:
                yield world.size, work(world, run)
            else:
                alone = world.on_lead(lambda run=run: vars(work(World(), run)))  # type: ignore[misc]
                yield 1, Timed(**alone)


def rows(name: str, unit: str, world: World, runs: list[tuple[int, Timed]], size: Size) -> Iterator[dict[str, object]]:
    """The medians of both kinds of runs, as rows."""
    median = {
        count: {
            "seconds": statistics.median(t.seconds for of, t in runs if of == count),
            "undisturbed": statistics.median(t.seconds - t.delayed for of, t in runs if of == count),
            "waiting": statistics.median(t.delayed / t.seconds for of, t in runs if of == count),
        }
        for count in sorted({count for count, _ in runs})
    }
    for count, of_count in median.items():
        seconds = [timed.seconds for of, timed in runs if of == count]
        yield {
            "benchmark": name,
            "configuration": f"{size.model} {size.pixels}x{size.pixels}, batch {size.batch}, {size.images} to score by",
            "processes": count,
            "threads": torch.get_num_threads(),
            "unit": unit,
            "seconds": round(of_count["seconds"], 4),
            "fastest": round(min(seconds), 4),
            "slowest": round(max(seconds), 4),
            "runs": len(seconds),
            "speedup": round(median[1]["seconds"] / of_count["seconds"], 3),
            "waiting": round(of_count["waiting"], 3),
            "undisturbed_speedup": round(median[1]["undisturbed"] / of_count["undisturbed"], 3),
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
    torch.set_num_threads(1)
    size = QUICK if options.quick else Size()
    work = Work(size)
    with joined("cpu") as world:
        if world.size == 1:
            parser.error("start it with torchrun --nproc-per-node 2: one process alone has nothing to be compared with")
        for name, unit, run in (("training", "step", work.train), ("search", "candidate", work.search)):
            runs = list(alternated(run, world, size.rounds))
            for row in rows(name, unit, world, runs, size) if world.leads else ():
                print(", ".join(f"{key} {row[key]}" for key in ("benchmark", "processes", "seconds", "speedup")))
                append_row(options.out, row)


if __name__ == "__main__":
    main()
