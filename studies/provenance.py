"""Cells of a study as CSV rows that say where they come from."""

from __future__ import annotations

import csv
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def provenance() -> dict[str, str]:
    """Commit and hardware, as columns of every row."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    return {"commit": commit, "cpu": _cpu(), "cores": str(os.cpu_count())}


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def finished(path: Path, key: Mapping[str, str]) -> bool:
    """Whether `path` has a row with the values of `key`."""
    if not path.is_file():
        return False
    with path.open(newline="") as file:
        return any(all(row[name] == value for name, value in key.items()) for row in csv.DictReader(file))


def append_row(path: Path, row: Mapping[str, object]) -> None:
    """Add a finished cell under the file's own header, which the first one writes; columns must be the same.

    Raises:
        ValueError: the row has columns that the file lacks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = not path.is_file()
    header = list(row)
    if not fresh:
        with path.open(newline="") as file:
            header = next(csv.reader(file))
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, header)
        if fresh:
            writer.writeheader()
        writer.writerow(row)
