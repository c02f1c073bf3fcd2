"""The kept ratio of every group beside the original, in the manner of the paper's Fig. 5."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bcnet.train import write_atomic

# Okabe and Ito's palette, told apart by people of every colour vision, and by lightness in print.
GREY, BLUE, VERMILLION = "#BBBBBB", "#0072B2", "#D55E00"


def write_pictures(folder: Path, document: Mapping[str, Any]) -> None:
    """Write `ratios.svg` and `ratios.png` for the content of `result.json`."""
    import matplotlib
    from matplotlib.figure import Figure

    groups = document["groups"]
    with matplotlib.rc_context({"svg.hashsalt": "bcnet", "svg.fonttype": "none"}):
        figure = Figure(figsize=(max(5.0, 1.6 + 0.34 * len(groups)), 3.6), layout="constrained")
        _draw(figure.add_subplot(), document)
        write_atomic(folder / "ratios.svg", _rendered(figure, "svg", metadata={"Date": None}))
        write_atomic(folder / "ratios.png", _rendered(figure, "png", dpi=150, metadata={"Software": None}))


def _draw(axes: Any, document: Mapping[str, Any]) -> None:
    groups = document["groups"]
    places = range(len(groups))
    searched = [g["searched"] / g["max_width"] for g in groups]
    uniform = [g["uniform"] / g["max_width"] for g in groups]
    axes.bar(places, [1.0] * len(groups), width=0.8, color=GREY, label="original")
    axes.bar(places, searched, width=0.5, color=BLUE, label="searched")
    axes.step(
        [-0.5, *(p + 0.5 for p in places)],
        [uniform[0], *uniform],
        where="pre",
        color=VERMILLION,
        linestyle="--",
        linewidth=1.5,
        label="Uniform",
    )
    axes.set_xticks(
        list(places), [f"{g['name']} ({g['max_width']})" for g in groups], rotation=60, ha="right", parse_math=False
    )
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("kept ratio of the width")
    networks = document["networks"]
    ratio = networks["searched"]["macs_ratio"]
    axes.set_title(f"{document['model']} on {document['data']}: {ratio:.3f}x of the MACs", fontsize=9, parse_math=False)
    axes.figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _rendered(figure: Any, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()
