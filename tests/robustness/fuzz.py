"""Thousands of changed files: none may crash a reader, hold it up or run code, none with a checksum may be accepted.

    python -m tests.robustness.fuzz            # 7,500 files into results/fuzz.csv, a row per kind
    python -m tests.robustness.fuzz --quick    # ten of each kind, nothing written

Every kind is read in a process of its own, which is killed when a file takes it more than ten seconds of processor time
(or two minutes of any: other work on the machine shall not look like a hang), and in which an audit hook notices
programs started, pickles opened, sockets, modules imported that a file names, and writing outside the folder. What
counts as an answer is a value or an error of ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from bcnet.errors import BCNetError
from studies.shared.provenance import ROOT, append_row, finished, provenance
from tests.robustness.fuzz_base import Target
from tests.robustness.fuzz_targets import TARGETS

OUTPUT = ROOT / "results" / "fuzz.csv"
LONGEST = 10.0  # seconds of processor time a file may take
_SILENCE = 120.0  # seconds without an answer
_MEMORY = 8 << 30  # bytes that a reader may address
GOOD = ("refused", "read", "read as it was")
_FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class")
_WRITING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.symlink", "os.link", "os.truncate", "shutil.rmtree")


def verdict(target: Target, seed: int, number: int, noticed: list[str] | None = None) -> str:
    """What the reader makes of the changed file `number`: one of `GOOD`, or what went wrong.

    What was `noticed` while the file was changed is forgotten.
    """
    rng = random.Random(f"{seed}/{target.name}/{number}")
    while not target.change(rng):
        pass  # a change that changes nothing
    if noticed is not None:
        noticed.clear()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = target.read()
    except BCNetError as error:
        return "refused" if str(error).strip() and "\n" not in str(error) else f"message of several lines: {error}"
    except Exception as error:
        return f"crash: {type(error).__name__}: {error}"[:300]
    if not target.checked:
        return "read"
    return "read as it was" if target.as_it_was(value) else "accepted"


def work(kind: str, seed: int, first: int, last: int, folder: Path) -> None:
    """Judge the files from `first` to `last`, one line each; run by `main` in a process of its own."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    target = next(t for t in TARGETS if t.name == kind)(folder)
    with_original = random.Random(0)
    target.change(with_original)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _warm_up(target)
    noticed = _watch(folder)
    print("ready", flush=True)
    for number in range(first, last):
        signal.setitimer(signal.ITIMER_PROF, LONGEST)  # its signal ends the process
        found = verdict(target, seed, number, noticed)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        if noticed:
            found = f"ran code: {noticed[0]}"
            noticed.clear()
        print(json.dumps([number, found]), flush=True)


def _warm_up(target: Target) -> None:
    """Have everything imported that a refusal imports; no verdict yet."""
    with contextlib.suppress(Exception):
        target.read()


def _watch(folder: Path) -> list[str]:
    noticed: list[str] = []
    inside = (str(folder), "/dev/null")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FORBIDDEN or event.startswith(("socket.connect", "socket.getaddrinfo")):
            noticed.append(f"{event} {arguments}")
        elif event == "import" and str(arguments[0]).startswith("no_such_module"):
            noticed.append(f"import {arguments[0]}")
        elif (event in _WRITING or _opens_to_write(event, arguments)) and not str(arguments[0]).startswith(inside):
            noticed.append(f"{event} {arguments[0]}")

    sys.addaudithook(hook)
    return noticed


def _opens_to_write(event: str, arguments: tuple[Any, ...]) -> bool:
    if event != "open":
        return False
    path, mode, flags = arguments
    if isinstance(path, int):
        return False
    return any(c in mode for c in "wax+") if isinstance(mode, str) else bool(flags & (os.O_WRONLY | os.O_RDWR))


def judge_all(kind: str, seed: int, count: int, place: Path) -> Counter[str]:
    """Verdicts on `count` files of a kind, with a new process wherever one hangs or dies."""
    verdicts: Counter[str] = Counter()
    first = 0
    while first < count:
        folder = place / f"{first}"
        folder.mkdir(parents=True)
        command = [
            sys.executable,
            "-m",
            "tests.robustness.fuzz",
            "--worker",
            kind,
            "--seed",
            str(seed),
            "--first",
            str(first),
        ]
        command += ["--last", str(count), "--folder", str(folder)]
        own = {"HF_HOME": str(folder / "hf"), "TMPDIR": str(folder), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **own}
        ) as process:
            first = _follow(process, first, verdicts)
    return verdicts


def _follow(process: subprocess.Popen[str], first: int, verdicts: Counter[str]) -> int:
    """Count verdicts until the process ends; the number of the next file."""
    assert process.stdout is not None
    ready = False
    while True:
        if not select.select([process.stdout], [], [], _SILENCE)[0]:
            process.kill()
            verdicts["hang"] += 1
            return first + 1
        line = process.stdout.readline()
        if not line:
            process.wait()
            if process.returncode == 0:
                return first
            if not ready:
                raise RuntimeError("the reader of the unchanged file failed")
            verdicts["hang" if process.returncode == -signal.SIGPROF else f"death: {process.returncode}"] += 1
            return first + 1
        if line == "ready\n":
            ready = True
            continue
        number, found = json.loads(line)
        first = number + 1
        verdicts[found] += 1


def main(
    seed: Annotated[int, typer.Option(help="Of all changes.")] = 0,
    quick: Annotated[bool, typer.Option(help="Ten of each kind, nothing written.")] = False,
    worker: Annotated[str | None, typer.Option(hidden=True)] = None,
    first: Annotated[int, typer.Option(hidden=True)] = 0,
    last: Annotated[int, typer.Option(hidden=True)] = 0,
    folder: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Judge every kind, and write a row for each."""
    if worker is not None and folder is not None:
        work(worker, seed, first, last, folder)
        return
    for target, full in TARGETS.items():
        count = 10 if quick else full
        key = {"kind": target.name, "seed": str(seed), "files": str(count)}
        if not quick and finished(OUTPUT, key):
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as place:
            verdicts = judge_all(target.name, seed, count, Path(place))
        bad = {found: n for found, n in verdicts.items() if found not in GOOD}
        row = {
            **key,
            "checksum": target.checked,
            **{found.replace(" ", "_"): verdicts[found] for found in GOOD},
            "wrong": sum(bad.values()),
            "what": "; ".join(sorted(bad))[:500],
            "seconds": round(time.monotonic() - start, 1),
        }
        print(row, flush=True)
        if not quick:
            append_row(OUTPUT, row | provenance())


if __name__ == "__main__":
    typer.run(main)
