"""The README's picture: accuracy against multiply-adds and milliseconds, from the table on small CIFAR-10.

python -m studies.cifar.picture    # writes docs/accuracy.svg
"""

from __future__ import annotations

import csv
from statistics import fmean
from typing import Any

import altair as alt

from studies.shared.provenance import ROOT, rows_of

TIMES = ROOT / "results" / "cifar_times.csv"
ENGINE = "litert"
NETWORKS = {"cifar_table_summary.csv": "vgg19_quarter", "cifar_table_resnet20_summary.csv": "resnet20"}
TITLES = {"vgg19_quarter": "VGG19/4", "resnet20": "ResNet-20"}
METHODS = {
    "original": "original",
    "uniform": "Uniform",
    "taylor": "Torch-Pruning (Taylor)",
    "autoslim": "AutoSlim",
    "ours, medium effort": "bcnet's search",
}
COLOURS = ["#000000", "#888888", "#d9822b", "#7e57c2", "#1f6feb"]


def rows() -> list[dict[str, Any]]:
    """Mean test top-1 (%), its standard error and mean milliseconds, for each network, method and budget.

    Means are over all trainings, as in the README's table: two of each narrow network on a seed.
    """
    found: list[dict[str, Any]] = []
    for file, network in NETWORKS.items():
        with (ROOT / "results" / file).open(newline="") as lines:
            table = {(row["method"], row["budget"], row["start"]): row for row in csv.DictReader(lines)}
        for method, budget in dict.fromkeys((method, budget) for method, budget, _ in table if method in METHODS):
            starts = ("scratch, all trainings", "scratch") if method == "original" else ("original, all trainings",)
            row = next(table[method, budget, start] for start in starts if (method, budget, start) in table)
            timed = [
                t
                for t in rows_of(TIMES, {"network": network, "engine": ENGINE, "method": method})
                if float(t["budget"]) == float(budget)
            ]
            mean, error = float(row["top1_mean"]), float(row["top1_standard_error"])
            found.append(
                {
                    "network": network,
                    "widths": METHODS[method],
                    "macs": fmean(float(t["macs_ratio"]) for t in timed),
                    "milliseconds": fmean(float(t["milliseconds"]) for t in timed),
                    "top1": mean,
                    "low": mean - error,
                    "high": mean + error,
                }
            )
    return found


def chart() -> alt.TopLevelMixin:
    """A row of two panels for each network."""
    found = rows()
    axes = {"macs": "multiply-adds of the original", "milliseconds": "milliseconds (LiteRT, one thread)"}
    panels = [
        alt.hconcat(*(_panel([r for r in found if r["network"] == network], key, axes[key], title) for key in axes))
        for network, title in TITLES.items()
    ]
    return alt.vconcat(*panels).configure_view(strokeWidth=0).configure(background="white")


def _panel(values: list[dict[str, Any]], key: str, axis: str, title: str) -> alt.LayerChart:
    colour = alt.Color(
        "widths:N", scale=alt.Scale(domain=list(METHODS.values()), range=COLOURS), legend=alt.Legend(title=None)
    )
    x = alt.X(f"{key}:Q", title=axis, scale=alt.Scale(zero=False, padding=12))
    y = alt.Y("top1:Q", title="test top-1 (%)", scale=alt.Scale(zero=False))
    base = alt.Chart().encode(x=x, color=colour)
    layers = alt.layer(
        base.mark_line().encode(y=y), base.mark_point(filled=True, size=50).encode(y=y),
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title="test top-1 (%)"), y2="high:Q"),
    )  # fmt: skip
    return layers.properties(data=alt.Data(values=values), title=title, width=230, height=190)


if __name__ == "__main__":
    chart().save(ROOT / "docs" / "accuracy.svg")
