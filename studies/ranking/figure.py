"""The picture of `results/ranking.csv`: tau of every supernet, side and score, with its interval over the widths."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

NAMES = {
    "complementary": "BC + complement",
    "complementary-bounded": "BC + complement of BCNetV2",
    "bilateral": "BC",
    "unilateral": "UA",
    "unilateral-complementary": "UA + complement",
    "sandwich": "UA, sandwich",
    "bilateral-sandwich": "BC, sandwich",
}
_COLOURS = {"accuracy": "tab:blue", "loss": "tab:orange"}
_PANELS = {"tau": "Kendall's tau", "tau_given_macs": "Kendall's tau, log MACs regressed out"}
_MARKERS = "osD^v"  # one per seed


def draw(rows_of: Path, settings: Mapping[str, str]) -> None:
    """Draw the rows of these settings, beside the CSV."""
    from matplotlib.figure import Figure

    with rows_of.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if all(row[name] == value for name, value in settings.items())]
    shown = {(row["supernet"], row["side"]) for row in rows}
    places = [(name, side) for name in reversed(NAMES) for side in ("both", "right", "left") if (name, side) in shown]
    picture = Figure(figsize=(10, 5), layout="constrained")
    for axis, (column, title) in zip(picture.subplots(1, 2, sharey=True), _PANELS.items(), strict=True):
        for row in (row for row in rows if row["supernet"] in NAMES):
            marker = _MARKERS[int(row["seed"]) % len(_MARKERS)]
            shift = (0.1 if row["score"] == "loss" else -0.1) + 0.06 * int(row["seed"])
            height = places.index((row["supernet"], row["side"])) + shift
            axis.plot(
                [float(row[f"{column}_{end}"]) for end in ("low", "high")], 2 * [height], color=_COLOURS[row["score"]]
            )
            axis.plot(float(row[column]), height, marker, color=_COLOURS[row["score"]], markersize=5)
        for row in (row for row in rows if row["supernet"] == "macs" and row[column]):
            axis.axvline(float(row[column]), color="grey", linestyle=":")
            axis.annotate("MACs", (float(row[column]), len(places) - 0.5), color="grey", ha="center")
        axis.set(title=title, ylim=(-0.6, len(places)))
        axis.set_yticks(range(len(places)), [f"{NAMES[name]}, {side}" for name, side in places])
        axis.grid(axis="x", alpha=0.3)
    for score, colour in _COLOURS.items():
        picture.axes[0].plot([], [], "o-", color=colour, label=f"by {score}")
    picture.axes[0].legend(loc="lower left", fontsize="small")
    picture.savefig(rows_of.with_suffix(".svg"), metadata={"Date": None})
