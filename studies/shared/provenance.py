"""Cells of a study as CSV rows that say where they come from."""

from __future__ import annotations

import csv
import fcntl
import functools
import io
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import torch

from bcnet.machine import device_name

ROOT = Path(__file__).resolve().parents[2]
CHANGED = "+changes"  # ends a commit whose files were not quite those that ran
_ROWS = ("results", "benchmarks/results")  # what studies write themselves


def provenance(commit: str | None = None) -> dict[str, str]:
    """Commit and hardware, as columns of every row; `commit` where a run was of another one than the code at hand.

    The processor comes with the vector instructions that torch uses, by which figures and faults differ.
    """
    cpu = f"{device_name('cpu')} ({torch.backends.cpu.get_cpu_capability()})"
    return {"commit": commit or _commit(), "cpu": cpu, "cores": str(os.cpu_count())}


@functools.cache
def _commit() -> str:
    """That of the code that runs, marked where files were changed since: a checkout may move on meanwhile."""
    name = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *(f":!{place}" for place in _ROWS))
    return f"{name or 'unknown'}{CHANGED if changed else ''}"


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


_commit()  # before anything can change


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file, none where there is no file; a last one that was only half written does not count."""
    content = _whole(path.read_bytes()) if path.is_file() else b""
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def finished(path: Path, key: Mapping[str, str]) -> bool:
    """Whether `path` has a row with the values of `key`."""
    return bool(rows_of(path, key))


def rows_of(path: Path, key: Mapping[str, str]) -> list[dict[str, str]]:
    """The rows of `path` that have the values of `key`."""
    return [row for row in rows(path) if all(row[name] == value for name, value in key.items())]


def append_row(path: Path, row: Mapping[str, object]) -> None:
    """Add a finished cell under the file's own header, which the first one writes; columns must be the same.

    On return the row is on disk. What a killed process had half written is written over; other processes wait.

    Raises:
        ValueError: the row has columns that the file lacks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # processes that compute different cells may share a file
        file.seek(0)
        there = _whole(file.read())
        header = next(csv.reader(io.StringIO(there.decode(), newline="")), None)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, header or list(row))
        if header is None:
            writer.writeheader()
        writer.writerow(row)
        file.truncate(len(there))
        file.write(text.getvalue().encode())
        file.flush()
        os.fsync(file.fileno())


def _whole(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]
