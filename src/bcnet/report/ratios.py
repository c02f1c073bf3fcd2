"""Kept ratio of every layer beside the original (the paper's Fig. 5), coupled layers together."""

from __future__ import annotations

from typing import Any

from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, Section, figure, not_yet, paragraph
from bcnet.report.look import SEARCHED, UNIFORM, colour, names_axis, ratio_axis, spec
from bcnet.space import LayerTerms, Widths, WidthSpace

_TITLE = "Kept widths, layer by layer"


def section(evidence: Evidence) -> Section:
    """The chart, for the trained widths or the best so far."""
    space, widths, uniform = evidence.space, evidence.best, evidence.uniform
    if space is None or widths is None or uniform is None:
        return Section("ratios", _TITLE, not_yet("No widths have been found yet."))
    rows = layer_rows(space, widths, uniform)
    text = (
        f"Every layer of {evidence.whose} whose channels could be searched, beside the original (grey) and "
        f"Uniform (tick). Layers in one block are coupled: they must keep the same channels. {len(rows)} layers in "
        f"{len(space.groups)} groups."
    )
    label = f"Kept ratio of {len(rows)} layers, by width group"
    body = paragraph(text) + figure("ratios", label, "Bars are shares of the original's channels.", tall=len(rows) > 40)
    return Section("ratios", _TITLE, body, {"ratios": chart(rows, space)}, "Kept widths")


def layer_rows(space: WidthSpace, widths: Widths, uniform: Widths) -> list[dict[str, Any]]:
    """One row for each layer that makes channels of a group, in the order of the groups."""
    rows = []
    for number, group in enumerate(space.groups):
        for layer in (layer for layer in space.layers if group_of(layer) == number):
            full, kept, even = (layer.width(w) for w in (space.original_widths, widths, uniform))
            assert full is not None
            assert kept is not None
            assert even is not None
            facts = {"layer": layer.name, "group": group.name, "block": number % 2, "full": full, "width": kept}
            rows.append(facts | {"ratio": kept / full, "uniform": even / full})
    return rows


def group_of(layer: LayerTerms) -> int | None:
    """The first group among the channels that the layer makes."""
    return next((s.group for s in layer.out or () if s.group is not None), None)


def chart(rows: list[dict[str, Any]], space: WidthSpace) -> Chart:
    """Horizontal bars, one per layer, on bands that alternate from group to group."""
    x, y = ratio_axis(space), names_axis("layer", [row["layer"] for row in rows])
    y["scale"] = {"paddingInner": 0, "paddingOuter": 0}
    tooltip = [
        {"field": "layer"},
        {"field": "group"},
        {"field": "width", "title": "searched"},
        {"field": "full", "title": "original"},
        {"field": "ratio", "format": ".1%", "title": "kept"},
        {"field": "uniform", "format": ".1%", "title": "Uniform keeps"},
    ]
    one = [{"calculate": "1", "as": "one"}]
    bands = {
        "transform": [{"filter": "datum.block == 1"}, *one],
        "mark": {"type": "bar", "height": {"band": 1}, "color": colour("raised")},
        "encoding": {"x": {"field": "one", **x}, "y": y},
    }
    full = {
        "transform": one,
        "mark": {"type": "bar", "height": {"band": 0.72}, "color": colour("bar")},
        "encoding": {"x": {"field": "one", **x}, "y": y, "tooltip": tooltip},
    }
    kept = {
        "name": "kept",
        "mark": {"type": "bar", "height": {"band": 0.72}, "color": colour(SEARCHED)},
        "encoding": {"x": {"field": "ratio", **x}, "y": y, "tooltip": tooltip},
    }
    ticks = {
        "mark": {"type": "tick", "thickness": 2.5, "color": colour(UNIFORM), "height": {"band": 0.95}},
        "encoding": {"x": {"field": "uniform", **x}, "y": y},
    }
    numbers = {
        "transform": [{"calculate": "datum.width + ' of ' + datum.full", "as": "text"}],
        "mark": {"type": "text", "align": "left", "dx": 6},
        "encoding": {"x": {"value": "width"}, "y": y, "text": {"field": "text"}},
    }
    layers = [bands, full, kept, ticks, numbers]
    return spec("Kept ratio of every layer", rows=len(rows), data={"values": rows}, layer=layers)
