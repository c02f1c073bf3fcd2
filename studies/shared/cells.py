"""Cells of a study: each is one row of a CSV file, computed once, whatever becomes of the others.

A cell that is in the file is never computed again; one that fails leaves a log, and the others go on.
"""

from __future__ import annotations

import hashlib
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from studies.shared.provenance import append_row, finished, provenance

_LONGEST_NAME = 120


@dataclass(frozen=True)
class Cell:
    """One row: `key` are the columns that tell the cell from the others, `figures()` computes the rest.

    Where the figures say no commit and hardware of their own, they are of this process.
    """

    key: Mapping[str, object]
    figures: Callable[[], Mapping[str, object]] = field(repr=False)

    @property
    def text_key(self) -> dict[str, str]:
        """The key as a CSV file has it."""
        return {name: str(value) for name, value in self.key.items()}

    @property
    def name(self) -> str:
        """The key in few words."""
        return " ".join(f"{name}={value}" for name, value in self.text_key.items() if value)

    @property
    def log_name(self) -> str:
        """The key as a file name, not that of any other cell."""
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:8]
        return f"{re.sub(r'[^A-Za-z0-9.=]+', '-', self.name)[:_LONGEST_NAME]}-{digest}.log"


def run_cells(cells: Sequence[Cell], out: Path, logs: Path) -> list[Cell]:
    """Finish the cells, one row of `out` each, in order.

    Returns:
        Those that failed; why is in a file of `logs`.
    """
    failed = []
    for number, cell in enumerate(cells, 1):
        place = f"[{number}/{len(cells)}] {cell.name}"
        if finished(out, cell.text_key):
            continue
        _say(place)
        try:
            row = {**cell.key, **{**provenance(), **cell.figures()}}
        except Exception as error:
            log = logs / cell.log_name
            logs.mkdir(parents=True, exist_ok=True)
            log.write_text(f"{cell.name}\n\n{traceback.format_exc()}", encoding="utf-8")
            _say(f"{place} FAILED: {error} (log: {log})")
            failed.append(cell)
            continue
        append_row(out, row)
    return failed


def matching(cells: Sequence[Cell], wanted: Mapping[str, str]) -> list[Cell]:
    """The cells whose key has the `wanted` values; case does not count.

    Raises:
        ValueError: a column that no key has, or values that no cell has.
    """
    known = list(dict.fromkeys(name for cell in cells for name in cell.key))
    if unknown := sorted(set(wanted) - set(known)):
        raise ValueError(f"no cell has a column {', '.join(unknown)}; the columns are {', '.join(known)}")
    found = [
        cell
        for cell in cells
        if all(cell.text_key.get(name, "").lower() == value.lower() for name, value in wanted.items())
    ]
    if not found:
        there = [f"{name}={value}" for name in wanted for value in sorted({cell.text_key[name] for cell in cells})]
        raise ValueError(f"no cell matches all of {dict(wanted)}; there are {', '.join(there)}")
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
