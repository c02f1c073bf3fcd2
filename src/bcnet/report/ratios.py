"""Kept ratio of every layer beside the original (the paper's Fig. 5), coupled layers together."""

from __future__ import annotations

from typing import Any

import altair as alt

from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, Section, figure, not_yet, paragraph
from bcnet.report.look import SEARCHED, UNIFORM, colour, names_axis, ratio_axis, spec, stack_layers, tip
from bcnet.space import LayerTerms, Widths, WidthSpace

_TITLE = "Kept widths, layer by layer"


def section(evidence: Evidence) -> Section:
    """Return the chart for the trained widths, or the best so far."""
    space = evidence.space
    widths = evidence.best
    uniform = evidence.uniform
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
    """Return one row per layer that produces channels of a group, in the order of the groups."""
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
    """Return the first group among the channels that the layer produces."""
    return next((s.group for s in layer.out or () if s.group is not None), None)


def chart(rows: list[dict[str, Any]], space: WidthSpace) -> Chart:
    """Return horizontal bars, one per layer, on bands that alternate between groups."""
    ratio = ratio_axis(space)
    layer = names_axis("layer", [row["layer"] for row in rows], joined=True)
    tooltip = [
        tip("layer"),
        tip("group"),
        tip("width", "searched"),
        tip("full", "original"),
        tip("ratio", "kept", ".1%"),
        tip("uniform", "Uniform keeps", ".1%"),
    ]
    bands = alt.Chart().transform_filter("datum.block == 1").transform_calculate(one="1")
    bands = bands.mark_bar(height={"band": 1}, color=colour("raised")).encode(x=alt.X("one:Q", **ratio), y=layer)
    full = alt.Chart().transform_calculate(one="1").mark_bar(height={"band": 0.72}, color=colour("bar"))
    full = full.encode(x=alt.X("one:Q", **ratio), y=layer, tooltip=tooltip)
    kept = alt.Chart(name="kept").mark_bar(height={"band": 0.72}, color=colour(SEARCHED))
    kept = kept.encode(x=alt.X("ratio:Q", **ratio), y=layer, tooltip=tooltip)
    ticks = alt.Chart().mark_tick(thickness=2.5, color=colour(UNIFORM), height={"band": 0.95})
    ticks = ticks.encode(x=alt.X("uniform:Q", **ratio), y=layer)
    numbers = alt.Chart().transform_calculate(text="datum.width + ' of ' + datum.full").mark_text(align="left", dx=6)
    numbers = numbers.encode(x=alt.value("width"), y=layer, text=alt.Text("text:N"))
    return spec(stack_layers(rows, bands, full, kept, ticks, numbers), "Kept ratio of every layer", rows=len(rows))
