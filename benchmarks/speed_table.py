"""The figures of `results/speed.csv` as the tables of docs/speed.md.

python -m benchmarks.speed_table    # writes them there
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from studies.shared.provenance import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "speed.csv"
PAGE = ROOT / "docs" / "speed.md"
BEGIN = "<!-- figures -->"
END = "<!-- end of figures -->"
Row = dict[str, str]


@dataclass(frozen=True)
class Target:
    """What a figure should be: between `least` and `most`."""

    section: str
    workload: tuple[str, str]
    figure: str
    least: float = -math.inf
    most: float = math.inf

    def __str__(self) -> str:
        return f"at most {self.most:g}" if math.isfinite(self.most) else f"at least {self.least:,g}"

    def of(self, row: Row) -> bool:
        """Whether it is about this row."""
        workload = (row["network"], row["configuration"])
        return (row["section"], workload, row["figure"]) == (self.section, self.workload, self.figure)

    def met(self, row: Row) -> bool:
        """Whether the row's figure is as it should be."""
        return self.least <= float(row["value"]) <= self.most


STEP_20 = ("resnet20", "batch 128 of 32x32")
STEP_50 = ("torchvision:resnet50", "batch 8 of 224x224")
SCORE_20 = ("resnet20", "4 times batch 2048 of 32x32")
SCORE_50 = ("torchvision:resnet50", "4 times batch 32 of 224x224")
MORE_50 = ("torchvision:resnet50", "16 times batch 32 of 224x224")
SEARCH = ("resnet20", "2000 candidates, batch 128 of 32x32")
TARGETS = (
    Target("steps", STEP_20, "step / four standalone", most=1.0),
    Target("steps", STEP_50, "step / four standalone", most=1.0),
    Target("steps", STEP_20, "step / fastest full-width step", most=2.2),
    Target("steps", STEP_20, "step of masked feature maps / step", least=2.0),
    Target("steps", STEP_50, "step of masked feature maps / step", least=3.0),
    Target("scoring", SCORE_20, "scoring / built inference, statistics of the batch", least=0.98),
    Target("scoring", SCORE_50, "scoring / built inference, statistics of the batch", least=0.98),
    Target("scoring", MORE_50, "scoring / built inference, statistics of the batch", least=0.98),
    Target("search", SEARCH, "outside the network / search", most=0.03),
    Target("counting", STEP_50, "cost", least=1e6),
    Target("memory", STEP_20, "peak of a supernet step / full", most=1.1),
    Target("memory", STEP_50, "peak of a supernet step / full", most=1.1),
)


def newest(rows: Iterable[Row]) -> list[Row]:
    """The last row of every figure and number of threads, in the order of the first."""
    keys = ("section", "network", "configuration", "figure", "threads")
    return list({tuple(row[key] for key in keys): row for row in rows}.values())


def tables(rows: list[Row]) -> str:
    """Figures with a target, then all others but the marks of finished cells."""
    aims = [(target, row) for target in TARGETS for row in rows if target.of(row)]
    aimed = [
        [_figure(row), row["configuration"], _value(row), str(target), "yes" if target.met(row) else "no", *_how(row)]
        for target, row in aims
    ]
    used = [row for _, row in aims]
    others = [
        [_figure(row), row["configuration"], _value(row), *_how(row)]
        for row in rows
        if row not in used and row["figure"] != "end of cell"
    ]
    how = ["threads", "waiting"]
    return "\n".join(
        [
            *_markdown(["figure", "workload", "got", "target", "met", *how], aimed),
            "",
            *_markdown(["figure", "workload", "got", *how], others),
        ]
    )


def _figure(row: Row) -> str:
    return f"{row['network'].removeprefix('torchvision:')}: {row['figure']}"


def _value(row: Row) -> str:
    unit = "" if row["unit"] == "ratio" else f" {row['unit']}"
    spread = f" ({_short(row['low'])} to {_short(row['high'])})" if int(row["rounds"]) > 1 else ""
    return f"{_short(row['value'])}{unit}{spread}"


def _short(number: str) -> str:
    value = float(number)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _how(row: Row) -> list[str]:
    return [row["threads"], f"{100 * float(row['waiting']):.0f} %"]


def _markdown(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    for cells in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(cells)} |"


def page(text: str, rows: list[Row]) -> str:
    """The page's text with the tables of these rows."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables(newest(rows))}\n\n{END}{after}"


def results(path: Path = RESULTS) -> list[Row]:
    """All rows of the file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), results()))
    print(f"{PAGE.relative_to(ROOT)} written", file=sys.stderr)
