"""The paper's main comparison, as far as a small machine gets: ResNet-20 on CIFAR-10 halved to 16 x 16 pixels.

Uniform, Random, AutoSlim, magnitude pruning, FastNAS, ours without the prior and ours, at 0.5 and 0.25 of the
multiply-adds, trained from scratch by one recipe with one seed and order of images; those with a supernet also
fine-tuned from its weights, which is a column of its own. Widths are chosen on images held out of the training images.

What can be shared fairly is: per seed the original, per budget the Uniform network, and one supernet for both budgets
of ours, with and without the prior. AutoSlim's supernet trains one path a step where ours trains four, and gets four
times the epochs. A cell is one `bcnet` command in a directory of its own: stopped, it goes on where it was,
finished, its row is in the CSV and it is never computed again. A cell that fails is reported with its log, and the
others go on.

    python studies/cifar_table.py [--quick] [--seeds 3] [--supernet-epochs 8] [--epochs 10] [--threads 1]

writes `results/cifar_table.csv`, a row for each cell; `results/cifar_table_summary.csv` and a picture beside it have
the mean and its standard error over the seeds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from cifar_table_summary import summarise
from provenance import ROOT, append_row, finished, provenance

DATA = f"parquet:{ROOT.parent / 'shared' / 'data' / 'cifar10'}"
OUT, RUNS = ROOT / "results" / "cifar_table.csv", ROOT / "runs" / "cifar_table"
BUDGETS = ("0.5", "0.25")
NEEDS = {"magnitude": "torch_pruning", "fastnas": "modelopt"}
METHODS = ("uniform", "ours", "ours without prior", "random", "autoslim", "magnitude", "fastnas")
WITH_SUPERNET = ("ours", "ours without prior", "autoslim")
_PATHS = 4  # of a step of our supernet


@dataclass(frozen=True)
class Effort:
    """How much is trained and searched; the same for every cell of a table. `lr` is the recipe's for one network."""

    model: str = "resnet20"
    image_size: int = 16
    supernet_epochs: int = 8
    epochs: int = 10
    candidates: int = 400
    random_networks: int = 20
    random_epochs: int = 2

    def __str__(self) -> str:
        return (
            f"{self.model} at {self.image_size}x{self.image_size}, supernet {self.supernet_epochs} epochs, "
            f"{self.candidates} candidates, random {self.random_networks} x {self.random_epochs} epochs, "
            f"networks {self.epochs} epochs"
        )


QUICK = Effort("resnet_digits", 8, 1, 1, 4, 2, 1)


@dataclass(frozen=True)
class Cell:
    """A method at a budget for one seed, trained from `start`: scratch, or a supernet's weights."""

    seed: int
    budget: str
    method: str
    start: str = "scratch"

    @property
    def name(self) -> str:
        """Of its directory."""
        tuned = "" if self.start == "scratch" else f"-{self.start}"
        return f"seed{self.seed}-{self.method.replace(' ', '-')}-{self.budget}{tuned}"

    @property
    def donors(self) -> list[Cell]:
        """Cells that may have finished what this one needs as well."""
        uniform = [Cell(self.seed, budget, "uniform") for budget in (self.budget, *BUDGETS)]
        if self.start != "scratch":
            return [Cell(self.seed, budget, self.method, self.start) for budget in BUDGETS if budget != self.budget]
        family = "ours" if self.method.startswith("ours") else self.method
        supernets = [Cell(self.seed, budget, family) for budget in (self.budget, *BUDGETS)]
        return [cell for cell in dict.fromkeys((*uniform, *supernets)) if cell != self]


@dataclass(frozen=True)
class Table:
    """The cells of some seeds, the files they end in, and what the commands need to know."""

    effort: Effort
    seeds: int
    budgets: tuple[str, ...]
    data: str
    runs: Path
    out: Path
    threads: int
    device: str

    def cells(self) -> Iterator[Cell]:
        """In the order in which they are of most use: seed by seed, what others share first."""
        methods = [m for m in METHODS if find_spec(NEEDS.get(m, "bcnet")) is not None]
        for seed in range(self.seeds):
            for method in methods:
                yield from (Cell(seed, budget, method) for budget in self.budgets)
            for method in (m for m in methods if m in WITH_SUPERNET):
                yield from (Cell(seed, budget, method, "supernet") for budget in self.budgets)

    def key(self, cell: Cell) -> dict[str, str]:
        """What tells the row of a cell from all others."""
        return {
            "configuration": str(self.effort),
            "seed": str(cell.seed),
            "budget": cell.budget,
            "method": cell.method,
            "start": cell.start,
        }

    def folder(self, cell: Cell) -> Path:
        """The run directory of a cell."""
        return self.runs / cell.name

    def command(self, cell: Cell) -> list[str]:
        """The `bcnet` command that computes a cell."""
        if cell.start != "scratch":
            origin = str(self.folder(Cell(cell.seed, cell.budget, cell.method)))
            return ["retrain", origin, "--final-from", cell.start, "--out", str(self.folder(cell)), *self._donors(cell)]
        effort, epochs = self.effort, self.effort.supernet_epochs
        how = ["search"] if cell.method.startswith("ours") else ["baseline", cell.method]
        if cell.method == "ours without prior":
            how += ["--searcher", "evolution-without-prior"]
        if cell.method == "random":
            how += ["--networks", str(effort.random_networks), "--short-epochs", str(effort.random_epochs)]
        if cell.method == "autoslim":
            how += ["--candidates", str(effort.candidates)]
            epochs *= _PATHS
        if how[0] == "search":
            population = min(40, effort.candidates)
            how += ["--population", str(population), "--generations", str(effort.candidates // population)]
        return [
            *how,
            *("--model", effort.model, "--data", self.data, "--image-size", str(effort.image_size)),
            *("--budget", cell.budget, "--seed", str(cell.seed), "--recipe", "resnet-cifar10"),
            *("--epochs", str(effort.epochs), "--supernet-epochs", str(epochs)),
            *("--threads", str(self.threads), "--device", self.device, "--out", str(self.folder(cell))),
            *self._donors(cell),
        ]

    def _donors(self, cell: Cell) -> list[str]:
        there = [self.folder(donor) for donor in cell.donors if (self.folder(donor) / "settings.json").exists()]
        return [word for folder in there for word in ("--take-from", str(folder))]

    def compute(self, cell: Cell) -> bool:
        """Run a cell to its end and write its row; False where it failed, with the end of its log shown."""
        log = self.runs / f"{cell.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            words = [sys.executable, "-m", "bcnet", *self.command(cell), "--log", "lines"]
            done = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, env=_environment(), check=False)
        if done.returncode:
            print(f"FAILED {cell.name} (exit code {done.returncode}), see {log}:\n{_end(log)}", flush=True)
            return False
        for row in self._rows(cell):
            append_row(self.out, row)
        return True

    def _rows(self, cell: Cell) -> Iterator[dict[str, object]]:
        """The cell's row; the original is a row of the first cell that trains it, Uniform of ours where fine-tuned."""
        result = json.loads((self.folder(cell) / "result.json").read_text())
        networks = {"searched": cell}
        if cell.method == "uniform" or (cell.start, cell.method) == ("supernet", "ours"):
            networks["original"] = Cell(cell.seed, "1", "original", cell.start)
        if (cell.start, cell.method) == ("supernet", "ours"):
            networks["uniform"] = Cell(cell.seed, cell.budget, "uniform", cell.start)
        for network, of in networks.items():
            if network != "searched" and finished(self.out, self.key(of)):
                continue
            figures, found = result["networks"][network], result["search"] if network == "searched" else None
            yield {
                **self.key(of),
                "top1": round(figures["test_top1"], 3),
                "macs_ratio": round(figures["macs_ratio"], 4),
                "params": figures["params"],
                "widths": " ".join(map(str, figures["widths"])),
                "score": "" if found is None else round(found["score"], 3),
                "evaluations": "" if found is None else found["evaluations"],
                "seconds": round(sum(result["seconds"].values()), 1),
                "threads": result["device"]["threads"],
                "device": result["device"]["name"],
                "torch": result["versions"]["torch"],
                **provenance(),
            }


def _environment() -> dict[str, str]:
    folders = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folder for folder in folders if folder)}


def _end(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-5:])


def main(
    quick: Annotated[
        bool, typer.Option("--quick", help="Digits, one epoch, seed, budget; writes quick_* files.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="0 up to this.")] = 3,
    supernet_epochs: Annotated[int, typer.Option(help="Of our supernet.")] = Effort.supernet_epochs,
    epochs: Annotated[int, typer.Option(help="Of every final network.")] = Effort.epochs,
    data: Annotated[str, typer.Option(help="As `bcnet search --data` takes it.")] = DATA,
    threads: Annotated[int, typer.Option(help="Of every cell.")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    runs: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Compute all cells that are not finished, and sum up."""
    effort, budgets = Effort(supernet_epochs=supernet_epochs, epochs=epochs), BUDGETS
    if quick:
        effort, seeds, budgets, data, out = QUICK, 1, BUDGETS[:1], "digits", out.with_name(f"quick_{out.name}")
    table = Table(effort, seeds, budgets, data, runs, out, threads, device)
    failed = []
    for cell in table.cells():
        if finished(out, table.key(cell)):
            continue
        print(cell.name, flush=True)
        if not table.compute(cell):
            failed.append(cell.name)
        elif out.exists():
            summarise(out, str(effort))
    if failed:
        raise SystemExit(f"{len(failed)} cells failed: {', '.join(failed)}; run again to try them again")


if __name__ == "__main__":
    typer.run(main)
