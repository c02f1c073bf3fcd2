"""The scores of all cells in one CSV file, a row per cell and widths, and the ways to read a score out of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bcnet.files import write_atomic
from studies.ranking.statistics import Array

SIDES = {"left": ("left",), "right": ("right",), "both": ("left", "right")}
METRICS = ("accuracy", "loss")


@dataclass(frozen=True)
class Contender:
    """One way to score widths: a supernet, the sides whose mean counts, and the metric. `macs` needs the first only."""

    supernet: str
    side: str = ""
    metric: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.supernet, self.side, self.metric) if part)


MACS = Contender("macs")


@dataclass(frozen=True)
class Scored:
    """Scored widths of one cell: columns by name, shape `(widths,)` each, of the sides that were scored."""

    columns: Mapping[str, Array]

    @property
    def accuracy(self) -> Array:
        """Mean accuracy of the table's three trainings, in percent."""
        return self.columns["table_accuracy"]

    @property
    def macs(self) -> Array:
        """Multiply-adds at the table's resolution."""
        return self.columns["macs"]

    def score(self, contender: Contender) -> Array:
        """What the contender makes of the widths, higher is better."""
        if contender == MACS:
            return self.macs
        sign = -1.0 if contender.metric == "loss" else 1.0
        return sign * np.mean([self.columns[f"{side}_{contender.metric}"] for side in SIDES[contender.side]], axis=0)


@dataclass(frozen=True)
class ScoreFile:
    """The CSV file, whose cells are told apart by the columns of a key."""

    path: Path

    def read(self, key: Mapping[str, object]) -> Scored | None:
        """The scores of a cell, or None where there are none."""
        rows = [row for row in self._rows() if _matches(row, key)]
        if not rows:
            return None
        names = [name for name in rows[0] if name.startswith(("macs", "table_", "left_", "right_"))]
        return Scored({name: np.array([float(row[name]) for row in rows]) for name in names if rows[0][name]})

    def write(self, key: Mapping[str, object], rows: Iterable[Mapping[str, object]]) -> None:
        """Put the rows of a cell into the file, at once, in the place of any that it had."""
        others = [row for row in self._rows() if not _matches(row, key)]
        document = [*others, *({**key, **row} for row in rows)]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(document[-1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(document)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, text.getvalue().encode())

    def _rows(self) -> list[dict[str, str]]:
        if not self.path.is_file():
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))


def _matches(row: Mapping[str, str], key: Mapping[str, object]) -> bool:
    return all(row[name] == str(value) for name, value in key.items())
