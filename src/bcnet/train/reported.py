"""Results that the paper reports for the recipes, and results measured here with them.

The paper's figures are in `reported.yaml`. Ours come from CSV files with one row per finished run, as written by
`python -m studies.shared.result_row`: `configuration`, `seed`, `searched_top1`, `final_epochs` and more.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

_CONFIGURATION = re.compile(r"--model (?P<model>\S+) --data (?P<data>\S+) --budget (?P<budget>.+)")
_NEEDED = {"configuration", "seed", "searched_top1", "uniform_top1", "original_top1", "final_epochs", "supernet_epochs"}


@dataclass(frozen=True)
class Reported:
    """Test top-1 in percent at a budget, as in the paper; None if not reported."""

    recipe: str
    model: str
    budget: str
    original: float
    ours: float
    uniform: float | None = None
    random: float | None = None
    distilled: float | None = None


@dataclass(frozen=True)
class Measured:
    """A finished run of ours: test top-1 in percent, its epochs, and the file that records it."""

    model: str
    data: str
    budget: str
    seed: int
    original: float
    uniform: float
    searched: float
    supernet_epochs: int
    final_epochs: int
    file: str


@cache
def reported_results() -> tuple[Reported, ...]:
    """Return every result of the paper's tables, by recipe, network and decreasing budget."""
    text = resources.files("bcnet.train").joinpath("reported.yaml").read_text(encoding="utf-8")
    recipes: Mapping[str, Mapping[str, Any]] = yaml.safe_load(text)
    return tuple(
        Reported(recipe, model, budget, entry["original"], **figures)
        for recipe, models in recipes.items()
        for model, entry in models.items()
        for budget, figures in entry["budgets"].items()
    )


def measured_results(folder: Path) -> tuple[Measured, ...]:
    """Return the finished runs in a folder's CSV files; other files are ignored."""
    runs = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if set(rows.fieldnames or ()) >= _NEEDED:
                found = [_run(row, path) for row in rows]
                runs += [run for run in found if run is not None]
    return tuple(runs)


def _run(row: Mapping[str, str], path: Path) -> Measured | None:
    found = _CONFIGURATION.fullmatch(row["configuration"])
    if found is None:
        return None
    return Measured(
        **found.groupdict(),
        seed=int(row["seed"]),
        original=float(row["original_top1"]),
        uniform=float(row["uniform_top1"]),
        searched=float(row["searched_top1"]),
        supernet_epochs=int(row["supernet_epochs"]),
        final_epochs=int(row["final_epochs"]),
        file=path.name,
    )
