"""The paper's main comparison, as far as a small machine gets: a quarter of VGG19 on CIFAR-10 halved to 16 x 16 pixels.

Uniform, Random, AutoSlim, magnitude pruning, FastNAS, ours without the prior and ours, at 0.5 and 0.25 of the
multiply-adds, trained from scratch by one recipe with one seed and order of images. Columns of their own are networks
fine-tuned from their supernet's weights, and from those of the trained original by the same recipe, as somebody would
who has a trained network: Torch-Pruning by magnitude and by Taylor terms, with the channels that it keeps, and
Uniform, balanced and searched widths, with the channels of the largest norm. Widths are chosen on images held out of
the training images; those of "ours" from the original by candidates that start from it too, which has seen them.

What can be shared fairly is: per seed the original, per budget the Uniform network, and one supernet for both budgets
and both starts of ours, with and without the prior. AutoSlim's supernet trains four paths a step, as ours does.
"Unilateral" is its greedy slimming on a supernet of one random path a step, without sandwich rule and distillation,
which gets four times the epochs for as many paths. "Ours, 4x epochs" gets as many, as in the paper, where all supernets
train alike.

"Ours, tuned scores" fine-tunes every candidate for a quarter of an epoch before its score (`--tune-steps`), which is
the mean loss, and slims greedily before it evolves; with "tuned finalists" the ten best then get two epochs
(`--finalist-steps`), and the best of them is trained. Both fine-tune gently, at a fifth of the supernet's learning
rate; "tuned at the full rate" does as the latter at the whole of it, and "ours, 4x epochs, tuned" the same on the
supernet of as many epochs as the unilateral one's. "Tuned for an epoch" takes four times as many steps for every
candidate, whose scores depend less on the order of the images (`tuning_noise.py`). "Ours, small effort", "medium" and
"large effort" have no supernet: `--effort` spends about one, three and ten trainings of the original on short ones that
a model of their scores proposes; of the latter two, from scratch, a part on whole trainings of the best. "Anywhere" are
rows of before the model kept to the neighbourhood of the best (`--reach 0`); "short trainings" spent all three on short
ones.

"Ours, medium effort" is the default. "Ours, on a supernet" is `--scorer supernet`, whose training is fair with a
smallest width too, and whose evolution starts from balanced and Uniform widths and stays within a tenth of the budget;
"ours, paper" is `--preset paper` on the same supernet. "Ours" is the former on a supernet of complements that keep to
the smallest width; all others of evolution are of the one before, which started from neither and stayed nowhere
(`--macs-from 0 --first-generation prior`).
"Random, continued" goes on with the training of the best of the random networks, as the paper does.

`--also` adds what tells supernet and search apart: our supernet searched greedily, the unilateral one by evolution,
scores by the mean loss, which depend less on the images they are taken on (`studies.scores.noise`).

One training says little: `--again 1` trains original, Uniform and the found networks of `AGAIN` from scratch a second
time, by other seeds, as cells of their own, `--again 2` a third time. From the original it trains those of
`FROM_ORIGINAL`, each from the original of that other seed, which pruners prune anew: they leave no widths alone.

All trains in float32, on any machine, unless `--precision bf16` says otherwise, which a CPU with AMX takes by itself:
`results/cifar_table_bf16.csv`.

A cell is one `bcnet` command in a directory of its own: stopped, it goes on where it was, finished, its row is in the
CSV and it is never computed again. A cell that fails is reported with its log, and the others go on. Commands for
different seeds (`--first-seed`, `--seeds`) may run side by side.

    python -m studies.cifar [--quick] [--seeds 3] [--supernet-epochs 8] [--epochs 10] [--threads 1]

writes `results/cifar_table.csv`, a row for each cell; `results/cifar_table_summary.csv` and a picture beside it have
the mean and its standard error over the seeds, for networks trained several times also those of a seed's means.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

import bcnet
from studies.cifar.summary import summarise
from studies.shared.cells import Cell, run_cells
from studies.shared.choices import check_known
from studies.shared.provenance import ROOT, provenance, rows_of

DATA = f"parquet:{ROOT.parent / 'shared' / 'data' / 'cifar10'}"
OUT = ROOT / "results" / "cifar_table.csv"
RUNS = ROOT / "runs" / "cifar_table"
BUDGETS = ("0.5", "0.25")
PRUNERS = {"magnitude": "torch_pruning", "taylor": "torch_pruning", "fastnas": "modelopt"}  # and their packages


@dataclass(frozen=True)
class Variant:
    """A search on a supernet that is trained for `longer` times the epochs of ours, with other `options`.

    `population` is that of a generation, of all candidates. "autoslim" has neither: it is run as the baseline of that
    name.
    """

    longer: float = 1.0
    options: tuple[str, ...] = ()
    strategy: str = "complementary-bounded"  # of the supernets that the rows were found on; see `BoundedComplementary`
    population: int = 40

    @property
    def has_supernet(self) -> bool:
        """Whether networks can start from one."""
        return not {"--effort", "--scorer"} & set(self.options)


_BY_LOSS = ("--score", "loss")
_WHOLE_FRONT = ("--macs-from", "0", "--first-generation", "prior")  # the evolution that the rows were computed with
_SLIMMED = (*_BY_LOSS, "--searcher", "greedy-evolution", "--first-generation", "prior")
_TUNED = (*_SLIMMED, "--tune-steps", "80")
_FOR_AN_EPOCH = (*_SLIMMED, "--tune-steps", "320")
_FINALISTS = ("--finalist-steps", "640")
_GENTLY = ("--tune-lr-share", "0.2")
_SHORT = ("--scorer", "trainings", "--searcher", "model", "--score", "loss", "--random-epochs", "2")
_ANYWHERE = ("--reach", "0")  # the proposals of the model that rows were computed with
SHORT_TRAININGS = {"vgg19_quarter": {"0.5": 26, "0.25": 38}, "resnet20": {"0.5": 27, "0.25": 40}}
"""How many short trainings three of the original pay for, by network and budget."""
VARIANTS = {
    "ours": Variant(),
    "ours, on a supernet": Variant(strategy="complementary"),
    "ours, paper": Variant(1.0, ("--preset", "paper"), strategy="complementary"),
    "ours, whole front": Variant(1.0, _WHOLE_FRONT),
    "ours without prior": Variant(1.0, (*_WHOLE_FRONT, "--searcher", "evolution-without-prior")),
    "ours, tuned scores": Variant(1.0, (*_TUNED, *_GENTLY), population=20),
    "ours, tuned finalists": Variant(1.0, (*_TUNED, *_FINALISTS, *_GENTLY), population=20),
    "ours, tuned at the full rate": Variant(1.0, (*_TUNED, *_FINALISTS), population=20),
    "ours, 2.4x epochs": Variant(2.36, _WHOLE_FRONT),
    "ours, 2.4x epochs, by loss": Variant(2.36, (*_WHOLE_FRONT, *_BY_LOSS)),
    "ours, 2.4x epochs, greedy": Variant(2.36, ("--searcher", "greedy")),
    "ours, 4x epochs": Variant(4.0, _WHOLE_FRONT),
    "ours, 4x epochs, by loss": Variant(4.0, (*_WHOLE_FRONT, *_BY_LOSS)),
    "ours, 4x epochs, tuned": Variant(4.0, (*_TUNED, *_FINALISTS), population=20),
    "ours, 4x epochs, tuned for an epoch": Variant(4.0, (*_FOR_AN_EPOCH, *_FINALISTS), population=20),
    "ours, short trainings anywhere": Variant(options=(*_SHORT, *_ANYWHERE)),
    "ours, small effort": Variant(options=("--effort", "small")),
    "ours, medium effort": Variant(options=("--effort", "medium")),
    "ours, large effort": Variant(options=("--effort", "large")),
    "ours, medium effort anywhere": Variant(options=("--effort", "medium", *_ANYWHERE)),
    "autoslim": Variant(1.0, strategy="sandwich"),
    "unilateral": Variant(4.0, strategy="unilateral"),
    "unilateral by evolution": Variant(4.0, _WHOLE_FRONT, strategy="unilateral"),
}
METHODS = (
    "uniform", "ours", "ours, whole front", "ours, tuned scores", "ours, tuned finalists",
    "ours, tuned at the full rate", "ours without prior", "balanced", "random", "autoslim", "unilateral", "magnitude",
    "taylor", "ours, 4x epochs", "ours, 4x epochs, tuned", "ours, medium effort", "ours, small effort",
    "ours, 4x epochs, tuned for an epoch", "fastnas", "ours, on a supernet", "ours, paper",
)  # fmt: skip
QUICK_METHODS = ("uniform", "ours", "ours, tuned scores")
SLIMMED = ("autoslim", "unilateral")  # baselines that search a supernet of their own
STARTS = ("scratch", "supernet", "original")
FROM_ORIGINAL = (
    *("uniform", "balanced", "random", "ours, medium effort", "magnitude", "taylor"),
    *("autoslim", "ours, on a supernet", "ours, paper", "ours, small effort", "ours, large effort"),
)
AGAIN = (
    *SLIMMED,
    *(method for method, variant in VARIANTS.items() if "--tune-steps" in variant.options),
)
_AGAIN = "again"
_OTHER_SEED = 100
_CONTINUED = "random, continued"
OTHERS = (_CONTINUED, *(method for method in VARIANTS if method not in METHODS))


@dataclass(frozen=True)
class Effort:
    """How much is trained and searched; the same for every cell of a table. `lr` is the recipe's for one network.

    `min_ratio` bounds the space of every method: sixteen layers in a row, each drawn down to a twentieth, would make
    nearly every path of a supernet one with a bottleneck of a channel or two.
    """

    model: str = "vgg19_quarter"
    image_size: int = 16
    min_ratio: float = 0.2
    supernet_epochs: int = 8
    epochs: int = 10
    candidates: int = 240
    random_networks: int = 20
    random_epochs: int = 1
    precision: str = "fp32"
    distilled: bool = False

    def __str__(self) -> str:
        return (
            f"{self.model} at {self.image_size}x{self.image_size}, ratios from {self.min_ratio}, "
            f"supernet {self.supernet_epochs} epochs, {self.candidates} candidates, "
            f"random {self.random_networks} x {self.random_epochs} epochs, networks {self.epochs} epochs"
            f"{'' if self.precision == Effort.precision else f', {self.precision}'}"
            f"{', distilled' if self.distilled else ''}"
        )


QUICK = Effort("resnet_digits", 8, 0.0, 1, 1, 4, 2, 1)


@dataclass(frozen=True)
class Run:
    """A `bcnet` run: a method at a budget for one seed, its networks trained from `start`: scratch, supernet, original.

    "again" is from scratch by another seed, "again 2" by a third one, and so is "original, again" from the original.
    """

    seed: int
    budget: str
    method: str
    start: str = "scratch"

    @property
    def name(self) -> str:
        """Of its directory."""
        other = "" if self.start == "scratch" else f"-{self.start}"
        return f"seed{self.seed}-{self.method}-{self.budget}{other}".replace(",", "").replace(" ", "-")

    @property
    def origin(self) -> Run | None:
        """The run that this one goes on from: from a supernet, its search; again, that of the other seed's original."""
        if self.times_before:
            starts_anew = self.method == "uniform" or self.method in PRUNERS
            return None if starts_anew else Run(self.seed, self.budget, "uniform", self.start)
        return Run(self.seed, self.budget, self.method) if self.start == "supernet" else None

    @property
    def first_start(self) -> str:
        """What such networks were started from the first time."""
        before, _, _ = self.start.partition(_AGAIN)
        return (before.removesuffix(", ") or "scratch") if self.times_before else self.start

    @property
    def times_before(self) -> int:
        """How often such networks were trained before, by other seeds."""
        _, word, number = self.start.partition(_AGAIN)
        return int(number or 1) if word else 0

    @property
    def donors(self) -> list[Run]:
        """Runs that may have finished what this one needs as well."""
        methods = {
            "scratch": ("uniform", self.method, *_sharing(self.method), *METHODS),
            "supernet": (self.method,),
            "original": ("uniform", self.method, *_sharing(self.method)),
        }.get(self.start, ("uniform", *dict.fromkeys((*AGAIN, *FROM_ORIGINAL))))
        budgets = (self.budget, *BUDGETS)
        others = [Run(self.seed, budget, method, self.start) for method in methods for budget in budgets]
        if self.start == "original":
            others += [Run(self.seed, budget, "uniform") for budget in budgets]  # the original is the same
        if self.start == "scratch" and _on_supernet(self.method):
            others += [replace(run, start="original") for run in others if _on_supernet(run.method)]  # so is the search
        return [run for run in dict.fromkeys(others) if run != self]


@dataclass(frozen=True)
class Table:
    """The cells of some seeds, where their runs are, and what the commands need to know."""

    effort: Effort
    seeds: range
    budgets: tuple[str, ...]
    methods: tuple[str, ...]
    data: str
    runs: Path
    out: Path
    threads: int
    device: str
    again: int = 0
    starts: tuple[str, ...] = STARTS

    def cells(self) -> Iterator[Cell]:
        """In the order in which they are of most use: from scratch, seed by seed, what others share first."""
        for cells in (self._from_scratch, self._from_supernets, self._from_the_original):
            yield from (cell for cell in cells() if cell.key["start"] in self.starts)
        for times in range(1, self.again + 1):
            word = _AGAIN if times == 1 else f"{_AGAIN} {times}"
            if "scratch" in self.starts:
                yield from self._trained_again(word)
            if "original" in self.starts:
                yield from self._from_the_original_again(f"original, {word}")

    def _from_scratch(self) -> Iterator[Cell]:
        for seed in self.seeds:
            yield self._cell("original", "1", Run(seed, self.budgets[0], "uniform"), "original")
            for method in self.methods:
                yield from (self._cell(method, budget, Run(seed, budget, method)) for budget in self.budgets)

    def _from_supernets(self) -> Iterator[Cell]:
        for seed in self.seeds:
            for method in filter(_on_supernet, self.methods):
                tuned = [Run(seed, budget, method, "supernet") for budget in self.budgets]
                yield from (self._cell(method, run.budget, run) for run in tuned)
                if method == "ours":
                    yield self._cell("original", "1", tuned[0], "original")
                    yield from (self._cell("uniform", run.budget, run, "uniform") for run in tuned)

    def _from_the_original(self) -> Iterator[Cell]:
        for seed in self.seeds:
            for method in (m for m in FROM_ORIGINAL if m in self.methods):
                yield from (self._cell(method, b, Run(seed, b, method, "original")) for b in self.budgets)

    def _trained_again(self, start: str) -> Iterator[Cell]:
        for budget in self.budgets:
            for seed in self.seeds:
                first = Run(seed, budget, "uniform", start)
                yield self._cell("original", "1", first, "original")
                for method in ("uniform", *(m for m in self.methods if m in AGAIN)):
                    yield self._cell(method, budget, Run(seed, budget, method, start))

    def _from_the_original_again(self, start: str) -> Iterator[Cell]:
        for seed in self.seeds:
            for method in (m for m in FROM_ORIGINAL if m in self.methods):
                yield from (self._cell(method, b, Run(seed, b, method, start)) for b in self.budgets)

    def _cell(self, method: str, budget: str, run: Run, network: str = "searched") -> Cell:
        key = {
            "configuration": str(self.effort),
            "seed": run.seed,
            "budget": budget,
            "method": method,
            "start": run.start,
        }
        return Cell(key, lambda: self._figures(run, network))

    def _figures(self, run: Run, network: str) -> dict[str, object]:
        """One network of a run, which is carried to its end first."""
        self._carry_out(run)
        result = json.loads(self._result(run).read_text())
        figures = result["networks"][network]
        found = result["search"] if network == "searched" else None
        return {
            "top1": round(figures["test"]["top1"], 3),
            "macs_ratio": round(figures["macs_ratio"], 4),
            "params": figures["params"],
            "widths": " ".join(map(str, figures["widths"])),
            "score": "" if found is None else round(found["score"], 3),
            "evaluations": "" if found is None else found["evaluations"],
            "seconds": round(sum(result["seconds"].values()), 1),
            **self._cost_of_search(run, searched=found is not None),
            "threads": result["device"]["threads"],
            "device": result["device"]["name"],
            "torch": result["versions"]["torch"],
            **provenance(result),
        }

    def _cost_of_search(self, run: Run, *, searched: bool) -> dict[str, object]:
        """Minutes, on the threads of the row, and trainings of the original; nothing where nothing was searched."""
        taken, trainings = bcnet.Run.open(self.folder(run)).search_cost
        if not searched or trainings is None:
            return {"search_minutes": "", "search_trainings": ""}
        return {"search_minutes": round(taken / 60, 1), "search_trainings": round(trainings, 2)}

    def folder(self, run: Run) -> Path:
        """The directory of a run."""
        return self.runs / run.name

    def _result(self, run: Run) -> Path:
        return self.folder(run) / "result.json"

    def _carry_out(self, run: Run) -> None:
        """Run the command of a run that is not at its end, and first that of its origin.

        Raises:
            RuntimeError: it failed, with the end of what it said.
        """
        if self._result(run).exists():
            return
        if run.origin is not None:
            self._carry_out(run.origin)
        self.runs.mkdir(parents=True, exist_ok=True)
        log = self.runs / f"{run.name}.log"
        with log.open("ab") as file:
            words = [sys.executable, "-m", "bcnet", *self.command(run), "--log", "lines"]
            done = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, env=_environment(), check=False)
        if done.returncode:
            end = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
            raise RuntimeError(f"{run.name} ended with exit code {done.returncode}, see {log}:\n{end}")

    def command(self, run: Run) -> list[str]:
        """The `bcnet` command that computes a run.

        Raises:
            RuntimeError: it trains widths a second time that the table does not have.
        """
        if run.origin is not None:
            how = ["--widths", self._first_widths(run)] if run.times_before else ["--final-from", run.start]
            return ["retrain", str(self.folder(run.origin)), *how, "--out", str(self.folder(run)), *self._from(run)]
        effort = self.effort
        return [
            *self._method(run.method, run.budget),
            *("--model", effort.model, "--data", self.data, "--image-size", str(effort.image_size)),
            *("--budget", run.budget, "--seed", str(run.seed + _OTHER_SEED * run.times_before)),
            *("--recipe", "resnet-cifar10", "--final-from", run.first_start),
            *("--min-ratio", str(effort.min_ratio)),
            *("--epochs", str(effort.epochs), *self._supernet_epochs(run.method)),
            *("--threads", str(self.threads), "--device", self.device, "--precision", effort.precision),
            *(("--set", "final.distillation.weight=0.5") if effort.distilled else ()),
            *("--out", str(self.folder(run))),
            *self._from(run),
        ]

    def _first_widths(self, run: Run) -> str:
        first = self._cell(run.method, run.budget, Run(run.seed, run.budget, run.method, run.first_start)).text_key
        found = rows_of(self.out, first)
        if not found:
            raise RuntimeError(f"{run.name} needs widths that are not there yet: {first} is no row of {self.out}")
        return found[0]["widths"].replace(" ", ",")

    def _supernet_epochs(self, method: str) -> list[str]:
        variant = VARIANTS.get(method, Variant())
        epochs = round(variant.longer * self.effort.supernet_epochs)
        return ["--supernet-epochs", str(epochs)] if variant.has_supernet else []

    def _method(self, method: str, budget: str) -> list[str]:
        effort = self.effort
        if method not in VARIANTS or method in SLIMMED:
            random = ["--random-networks", str(effort.random_networks), "--random-epochs", str(effort.random_epochs)]
            own = {"random": random, _CONTINUED: [*random, "--random-continued"]}
            own |= {name: ["--candidates", str(effort.candidates)] for name in SLIMMED}
            return ["baseline", method.partition(",")[0], *own.get(method, [])]
        variant = VARIANTS[method]
        population = min(variant.population, effort.candidates)
        generations = str(effort.candidates // population)
        size = ["--population", str(population), "--generations", generations]
        if "--effort" in variant.options:
            return ["search", *variant.options]
        short = SHORT_TRAININGS.get(effort.model, {}).get(budget, 8)
        number = ["--random-networks", str(short)] if "--random-epochs" in variant.options else []
        return ["search", *size, "--strategy", variant.strategy, *variant.options, *number]

    def _from(self, run: Run) -> list[str]:
        there = [self.folder(donor) for donor in run.donors if (self.folder(donor) / "settings.json").exists()]
        return [word for folder in there for word in ("--take-from", str(folder))]


def _on_supernet(method: str) -> bool:
    """Whether the scores of `method` come from a supernet."""
    return method in VARIANTS and VARIANTS[method].has_supernet


def _sharing(method: str) -> list[str]:
    """Methods that search on the same supernet."""
    if method not in VARIANTS:
        return []
    mine = VARIANTS[method]
    return [m for m, other in VARIANTS.items() if (mine.longer, mine.strategy) == (other.longer, other.strategy)]


def _environment() -> dict[str, str]:
    folders = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folder for folder in folders if folder)}


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Uniform and two of ours on digits; writes quick_*.")] = False,
    seeds: Annotated[int, typer.Option(help="How many.")] = 3,
    first_seed: Annotated[int, typer.Option(help="They count from here.")] = 0,
    skip: Annotated[list[str] | None, typer.Option(help="A method to leave out; repeatable.")] = None,
    also: Annotated[list[str] | None, typer.Option(help=f"Of {'; '.join(OTHERS)}: one to add; repeatable.")] = None,
    start: Annotated[list[str] | None, typer.Option(help=f"Only from, of {', '.join(STARTS)}; repeatable.")] = None,
    again: Annotated[int, typer.Option(help="How often to train what was found again, by other seeds.", min=0)] = 0,
    model: Annotated[str, typer.Option(help="The network.")] = Effort.model,
    min_ratio: Annotated[float, typer.Option(help="Of every space; a configuration of its own.")] = Effort.min_ratio,
    supernet_epochs: Annotated[int, typer.Option(help="Of our supernet.")] = Effort.supernet_epochs,
    epochs: Annotated[int, typer.Option(help="Of every final network.")] = Effort.epochs,
    precision: Annotated[str, typer.Option(help="fp32 or bf16; a configuration of its own.")] = Effort.precision,
    distilled: Annotated[
        bool, typer.Option("--distilled", help="Final networks learn from the original; a configuration of its own.")
    ] = False,
    data: Annotated[str, typer.Option(help="As `bcnet search --data` takes it.")] = DATA,
    threads: Annotated[int, typer.Option(help="Of every cell.")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    runs: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
    out: Annotated[Path, typer.Option(help="The CSV.")] = OUT,
) -> None:
    """Compute all cells that are not finished, and sum up."""
    effort = Effort(
        model,
        min_ratio=min_ratio,
        supernet_epochs=supernet_epochs,
        epochs=epochs,
        precision=precision,
        distilled=distilled,
    )
    budgets = BUDGETS
    check_known("--also", also or (), OTHERS)
    check_known("--skip", skip or (), METHODS)
    check_known("--start", start or (), STARTS)
    chosen = [m for m in (*METHODS, *(also or ())) if m not in (skip or ())]
    methods = tuple(m for m in chosen if find_spec(PRUNERS.get(m, "bcnet")) is not None)
    if quick:
        effort = QUICK
        seeds = 1
        budgets = BUDGETS[:1]
        methods = QUICK_METHODS
        data = "digits"
        out = out.with_name(f"quick_{out.name}")
    wanted = range(first_seed, first_seed + seeds)
    failed = []
    starts = tuple(start or STARTS)
    table = Table(effort, wanted, budgets, methods, data, runs, out, threads, device, again, starts)
    for cell in table.cells():
        failed += run_cells([cell], out, runs)
        if out.exists():
            summarise(out, str(effort))
    if failed:
        raise SystemExit(f"{len(failed)} cells failed; run again to try them again")


if __name__ == "__main__":
    typer.run(main)
