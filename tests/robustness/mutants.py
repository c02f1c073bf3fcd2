"""Small changes to the code that the tests of `make test` must notice: 200 of them, drawn from the core's rooms.

    make mutants                                     # 200 mutants into results/mutants.csv, a row each
    python -m tests.robustness.mutants --count 20    # fewer; goes on where it stopped

The mutants are cosmic-ray's: another operator, a number one larger or smaller, a condition negated, a loop that does
not run. A place in the code is drawn first and then what happens to it, so that an operator with many replacements does
not fill the sample. Annotations and what is imported for them are no code, nor is the star of a signature, which
cosmic-ray takes for a product; `strict=` of `zip` asserts what the code has seen to, and which fields a value shows is
for people: they stay.

The tests run once as they are, with coverage's record of which test executes which line. A mutant then meets the tests
that execute its line, and those of its room that start processes of their own, which coverage does not see. Its room's
come first, until one fails or `--seconds` of them have run: who is alive then counts as survived, though later tests
might have killed it. The share that is killed is a lower bound.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Annotated, Any

import typer
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from coverage import CoverageData

from studies.shared.provenance import ROOT, append_row, provenance, rows

OUTPUT = ROOT / "results" / "mutants.csv"
ROOMS = ("space", "supernet", "train", "prior", "searchers")
_MAP = ROOT / "runs" / "mutants"  # what a run of all tests says of lines and seconds
_SPARE = 20.0  # seconds for imports, beyond what the tests take
_SLOWER = 10.0  # times: a mutant that takes longer hangs
_OUTCOMES = {
    **{0: "survived", 5: "no test"},
    **{1: "failed", 2: "failed at import", 3: "failed at import", 4: "failed at import"},
}  # by pytest's exit codes


@dataclass(frozen=True)
class Place:
    """Somewhere in a file of the package that operators change, `choices` being pairs of operator and occurrence."""

    file: str
    line: int
    column: int
    choices: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Mutant:
    """One change of one place."""

    file: str
    line: int
    operator: str
    occurrence: int

    def applied(self, code: str) -> str | None:
        """The changed code; None where nothing changes."""
        changed = mutate_code(code, get_operator(self.operator)(), self.occurrence)
        return None if changed == code else changed


@dataclass(frozen=True)
class LineMap:
    """Which tests execute a line, and how long each takes, set-up and all."""

    by_line: Mapping[tuple[str, int], frozenset[str]]
    seconds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> LineMap:
        """From coverage's file and pytest's report in `folder`."""
        data = CoverageData(str(folder / "coverage"))
        data.read()
        by_line: dict[tuple[str, int], set[str]] = defaultdict(set)
        for path in data.measured_files():
            file = "src/" + path.rpartition("/src/")[2]
            for line, contexts in data.contexts_by_lineno(path).items():
                by_line[file, line] |= {context.partition("|")[0] for context in contexts if context}
        seconds = {}
        for case in ET.parse(folder / "junit.xml").iter("testcase"):
            module = case.attrib["classname"].replace(".", "/") + ".py"
            seconds[f"{module}::{case.attrib['name']}"] = float(case.attrib["time"])
        return cls({key: frozenset(value) for key, value in by_line.items()}, seconds)

    def tests_of(self, mutant: Mutant, at_most: float) -> list[str]:
        """Tests for a mutant, of about `at_most` seconds: its room's first, the quick files before the slow ones.

        Tests of a file stay together, since they share what is made for all of them. Lines that only an import
        executes, which no test is named for, meet the tests of the whole file, and those of the whole package.
        """
        executed = self.by_line.get((mutant.file, mutant.line))
        if not executed:
            of_all = {test for test in self.seconds if re.match(r"tests/test_\w+\.py::", test)}
            of_file = [tests for (file, _), tests in self.by_line.items() if file == mutant.file]
            executed = frozenset().union(*of_file, of_all) if of_file else frozenset()
        room = f"tests/{Path(mutant.file).parts[2]}/"
        apart = {test for test in self.seconds if test.startswith(room) and _starts_processes(test.partition("::")[0])}
        files: dict[str, list[str]] = defaultdict(list)
        for test in sorted(executed | apart if executed else executed):
            files[test.partition("::")[0]].append(test)
        order = sorted(files, key=lambda name: (not name.startswith(room), self._sum(files[name]), name))
        chosen: list[str] = []
        spent = 0.0
        for name in order:
            for test in sorted(files[name], key=lambda test: self.seconds.get(test, 0.0)):
                spent += self.seconds.get(test, 0.0)
                if chosen and spent > at_most:
                    return chosen
                chosen.append(test)
        return chosen

    def _sum(self, tests: Sequence[str]) -> float:
        return sum(self.seconds.get(test, 0.0) for test in tests)


@functools.cache
def _starts_processes(file: str) -> bool:
    path = ROOT / file
    return path.is_file() and any(word in path.read_text() for word in ("subprocess", "processes"))


def places(files: Sequence[Path]) -> list[Place]:
    """All places in `files`, in the order of the code."""
    found: list[Place] = []
    for path in files:
        code = path.read_text()
        silent = _left_out(code)
        tree = get_ast(code)
        at: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
        for name in operator_names():
            operator = get_operator(name)
            if operator.arguments():  # cosmic-ray's replacement of variables wants their names
                continue
            positions = (start for node in ast_nodes(tree) for start, _ in operator().mutation_positions(node))
            for occurrence, start in enumerate(positions):
                if not any(first <= tuple(start) < last for first, last in silent):
                    at[tuple(start)].append((name, occurrence))
        file = path.relative_to(ROOT).as_posix()
        found += [Place(file, line, column, tuple(choices)) for (line, column), choices in sorted(at.items())]
    return found


def _left_out(code: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations stand, which nothing executes, stars of signatures, `strict=` of `zip`, `repr=` of fields."""
    nodes: list[ast.expr | None] = []
    stars: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.args.kwonlyargs:
            before = [*node.args.posonlyargs, *node.args.args, *node.args.defaults]
            ends = [(part.end_lineno or 0, part.end_col_offset or 0) for part in before]
            first = node.args.kwonlyargs[0]
            stars.append((max(ends, default=(node.lineno, node.col_offset)), (first.lineno, first.col_offset)))
        if isinstance(node, ast.AnnAssign | ast.arg):
            nodes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes.append(node.returns)
        elif isinstance(node, ast.keyword) and node.arg in ("strict", "repr"):
            nodes.append(node.value)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes.append(node.test)
    return stars + [
        ((node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0))
        for node in nodes
        if node is not None
    ]


def sample(everywhere: Sequence[Place], count: int, seed: int) -> list[Mutant]:
    """The first `count` of an endless, seeded draw of places without repetition, with one change of each."""
    draw = random.Random(seed)
    order = list(everywhere)
    draw.shuffle(order)
    chosen = []
    for place in order[:count]:
        # Kinds of operators before operators: twelve replacements of `+` are one kind.
        kinds: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for name, occurrence in place.choices:
            kinds[name.partition("_")[0]].append((name, occurrence))
        name, occurrence = draw.choice(kinds[draw.choice(sorted(kinds))])
        chosen.append(Mutant(place.file, place.line, name, occurrence))
    return chosen


def copy_of_the_tree(target: Path) -> Path:
    """The checkout's own files in `target`, with the data beside it."""
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True).stdout
    for name in names.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / "tree" / name)
    shutil.copytree(ROOT / ".git", target / "tree" / ".git")
    shared = ROOT.parent / "shared"
    if shared.is_dir():
        (target / "shared").symlink_to(shared)
    return target / "tree"


def pytest_in(tree: Path, *words: str, seconds: float | None = None) -> int | None:
    """The exit code of pytest in a copy of the tree; None where it took longer than `seconds`."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *words]
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    with subprocess.Popen(command, cwd=tree, env=environment, **options) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)  # its workers and what tests have started go with it


def mapped() -> LineMap:
    """The map of the tests of this commit, made where there is none yet: one run of them all, with coverage."""
    folder = _MAP / provenance()["commit"]
    if not (folder / "coverage").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as place:
            tree = copy_of_the_tree(Path(place))
            settings = tree / ".coveragerc"
            settings.write_text(f"[run]\ndata_file = {folder / 'partial'}\nsource_pkgs = bcnet\n")
            fast = ["-m", "not slow and not networks"]
            words = [*fast, "--numprocesses", "auto", "--dist", "worksteal", "--cov-report=", "--cov"]
            pytest_in(tree, *words, "--cov-context=test", f"--junitxml={folder / 'junit.xml'}")
            (folder / "partial").rename(folder / "coverage")
    return LineMap.read(folder)


def verdict(tree: Path, mutant: Mutant, tests: LineMap, seconds: float) -> dict[str, object]:
    """What became of a mutant in a copy of the tree, which is left as it was."""
    file = tree / mutant.file
    code = file.read_text()
    changed = mutant.applied(code)
    before, after = _difference(code, changed or code)
    chosen = tests.tests_of(mutant, seconds)
    limit = _SPARE + _SLOWER * sum(tests.seconds.get(test, 1.0) for test in chosen)
    began = time.monotonic()
    if not chosen:
        outcome = "no test"
    else:
        (tree / "chosen.txt").write_text("\n".join(chosen))
        file.write_text(changed or code)
        try:
            code_of_pytest = pytest_in(tree, "-x", "@chosen.txt", seconds=limit)
        finally:
            file.write_text(code)
        outcome = _outcome(code_of_pytest)
    return {
        "file": mutant.file,
        "line": mutant.line,
        "operator": mutant.operator,
        "occurrence": mutant.occurrence,
        "before": before,
        "after": after,
        "outcome": outcome,
        "tests": len(chosen),
        "seconds": round(time.monotonic() - began, 1),
    }


def _outcome(code: int | None) -> str:
    """What the exit code of pytest says; who takes all memory, for one, ends it by a signal."""
    return "hangs" if code is None else _OUTCOMES.get(code, "crashed")


def _difference(before: str, after: str) -> tuple[str, str]:
    for old, new in zip(before.splitlines(), after.splitlines(), strict=False):
        if old != new:
            return old.strip(), new.strip()
    return "", ""


def main(
    count: Annotated[int, typer.Option(help="Mutants.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    seconds: Annotated[float, typer.Option(help="Of tests that a mutant meets.")] = 120.0,
    jobs: Annotated[int, typer.Option(help="Mutants at once.")] = os.cpu_count() or 1,
    out: Annotated[Path, typer.Option(help="CSV of finished mutants.")] = OUTPUT,
) -> None:
    """Add the mutants that `out` lacks, and say how many were killed."""
    files = sorted(path for room in ROOMS for path in (ROOT / "src" / "bcnet" / room).rglob("*.py"))
    wanted = sample(places(files), count, seed)
    tests = mapped()
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(jobs) as pool:
        trees: Queue[Path] = Queue()
        for number in range(jobs):
            trees.put(copy_of_the_tree(Path(place) / str(number)))

        def one(mutant: Mutant) -> dict[str, object]:
            tree = trees.get()
            try:
                return verdict(tree, mutant, tests, seconds)
            finally:
                trees.put(tree)

        for row in pool.map(one, _missing(wanted, out, seed)):
            append_row(out, {"seed": seed, **row, **provenance()})
            print(f"{row['outcome']:10} {row['file']}:{row['line']}  {row['before']}  ->  {row['after']}", flush=True)
    outcomes = [row["outcome"] for row in rows(out) if row["seed"] == str(seed)]
    alive = sum(outcome in ("survived", "no test") for outcome in outcomes)
    print(f"{len(outcomes) - alive} of {len(outcomes)} mutants were killed")


def _missing(wanted: Sequence[Mutant], out: Path, seed: int) -> Iterator[Mutant]:
    columns = ("file", "line", "operator", "occurrence")
    there = {tuple(row[name] for name in columns) for row in rows(out) if row["seed"] == str(seed)}
    for mutant in wanted:
        if tuple(str(getattr(mutant, name)) for name in columns) not in there:
            yield mutant


if __name__ == "__main__":
    typer.run(main)
