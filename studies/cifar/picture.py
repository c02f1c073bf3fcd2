"""The README's picture: accuracy against multiply-adds, from the summaries of the table on small CIFAR-10.

python -m studies.cifar.picture    # writes docs/accuracy.svg
"""

from __future__ import annotations

import csv

import altair as alt

from studies.shared.provenance import ROOT

NETWORKS = {"cifar_table_summary.csv": "VGG19/4", "cifar_table_resnet20_summary.csv": "ResNet-20"}
METHODS = {
    "uniform": "Uniform",
    "taylor": "Torch-Pruning (Taylor)",
    "autoslim": "AutoSlim",
    "ours, medium effort": "bcnet's search",
}
COLOURS = ["#888888", "#d9822b", "#7e57c2", "#1f6feb"]


def rows() -> list[dict[str, object]]:
    """Mean test top-1 (%) and its standard error over three seeds, for each network, method and budget."""
    found: list[dict[str, object]] = []
    for file, network in NETWORKS.items():
        with (ROOT / "results" / file).open(newline="") as lines:
            for row in csv.DictReader(lines):
                if row["start"] != "original" or row["method"] not in METHODS:
                    continue
                mean, error = float(row["top1_mean"]), float(row["top1_standard_error"])
                found.append(
                    {
                        "network": network,
                        "widths": METHODS[row["method"]],
                        "budget": float(row["budget"]),
                        "top1": mean,
                        "low": mean - error,
                        "high": mean + error,
                    }
                )
    return found


def chart() -> alt.TopLevelMixin:
    """A panel for each network."""
    colour = alt.Color(
        "widths:N", scale=alt.Scale(domain=list(METHODS.values()), range=COLOURS), legend=alt.Legend(title=None)
    )
    x = alt.X("budget:Q", title="multiply-adds of the original", scale=alt.Scale(domain=[0.2, 0.55]))
    x = x.axis(values=[0.25, 0.5], format=".2f")
    y = alt.Y("top1:Q", title="test top-1 (%)", scale=alt.Scale(zero=False))
    base = alt.Chart().encode(x=x, color=colour)
    layers = alt.layer(
        base.mark_line().encode(y=y), base.mark_point(filled=True, size=50).encode(y=y),
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title="test top-1 (%)"), y2="high:Q"),
    )  # fmt: skip
    panels = [
        layers.properties(
            data=alt.Data(values=[r for r in rows() if r["network"] == network]), title=network, width=230
        )
        for network in NETWORKS.values()
    ]
    return alt.hconcat(*panels).configure_view(strokeWidth=0).configure(background="white")


if __name__ == "__main__":
    chart().save(ROOT / "docs" / "accuracy.svg")
