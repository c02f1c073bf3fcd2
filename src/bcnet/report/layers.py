"""Layers before and after: a table, and the kept ratio of every layer (the paper's Fig. 5), coupled layers together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, Section, figure, not_yet, paragraph, table
from bcnet.report.look import SEARCHED, UNIFORM, colour, names_axis, ratio_axis, spec, stack_layers, tip
from bcnet.space import LayerTerms, Polynomial, Widths, WidthSpace

_LAYERS = "Layers, before and after"
_OTHERS = "other layers"
Pair = tuple[int, int]  # before, after
_RATIOS = "Kept widths, layer by layer"


@dataclass(frozen=True)
class Row:
    """A layer: its channels, MACs and parameters, each before and after. `group` is empty if it has none."""

    name: str
    group: str
    width: Pair | None
    macs: Pair
    params: Pair


def layers_section(evidence: Evidence) -> Section:
    """Return the table for the trained widths, or the best so far."""
    space = evidence.space
    widths = evidence.best
    if space is None or widths is None:
        return Section("layers", _LAYERS, not_yet("No widths have been found yet."))
    rows = layer_rows(space, widths)
    text = (
        f"Exact counts for one input, of the original and of {evidence.whose}. Batch norm and other layers without "
        "multiply-adds are added up in one row."
    )
    text += f" {space.uncounted_note}" if space.uncounted else ""
    before = [f"{what} before" for what in ("channels", "MACs", "parameters")]
    head = ("layer", "width group", before[0], "after", before[1], "after", "kept", before[2], "after", "kept")
    body = table(head, map(_cells, rows), "Layers before and after", total=_cells(total(rows)), texts=2)
    return Section("layers", _LAYERS, paragraph(text) + body, short="Layers")


def layer_rows(space: WidthSpace, widths: Widths) -> list[Row]:
    """Return one row per layer with multiply-adds, and one for all others; they sum to the space's costs."""
    table = np.array([space.original_widths, widths])

    def values(polynomial: Polynomial) -> Pair:
        before, after = polynomial(table).tolist()
        return before, after

    rows = []
    others = (0, 0)
    for layer in space.layers:
        params = values(layer.params)
        if not layer.macs.terms:
            others = (others[0] + params[0], others[1] + params[1])
            continue
        group = group_of(layer)
        before = layer.width(space.original_widths)
        after = layer.width(widths)
        width = None if before is None or after is None else (before, after)
        name = "" if group is None else space.groups[group].name
        rows.append(Row(layer.name, name, width, values(layer.macs), params))
    return [*rows, Row(_OTHERS, "", None, (0, 0), others)] if others != (0, 0) else rows


def total(rows: list[Row]) -> Row:
    """Return the sums over all rows."""
    return Row("total", "", None, _sum([r.macs for r in rows]), _sum([r.params for r in rows]))


def _sum(pairs: list[Pair]) -> Pair:
    return sum(before for before, _ in pairs), sum(after for _, after in pairs)


def _cells(row: Row) -> tuple[str, ...]:
    width = ("", "") if row.width is None else (f"{row.width[0]:,}", f"{row.width[1]:,}")
    return (row.name, row.group, *width, *_count_cells(row.macs), *_count_cells(row.params))


def _count_cells(pair: Pair) -> tuple[str, str, str]:
    before, after = pair
    return (f"{before:,}", f"{after:,}", f"{100 * after / before:.0f} %") if before else ("", "", "")


def ratios_section(evidence: Evidence) -> Section:
    """Return the chart for the trained widths, or the best so far."""
    space = evidence.space
    widths = evidence.best
    uniform = evidence.uniform
    if space is None or widths is None or uniform is None:
        return Section("ratios", _RATIOS, not_yet("No widths have been found yet."))
    rows = ratio_rows(space, widths, uniform)
    text = (
        f"Every layer of {evidence.whose} whose channels could be searched, beside the original (grey) and "
        f"Uniform (tick). Layers in one block are coupled: they must keep the same channels. {len(rows)} layers in "
        f"{len(space.groups)} groups."
    )
    label = f"Kept ratio of {len(rows)} layers, by width group"
    body = paragraph(text) + figure("ratios", label, "Bars are shares of the original's channels.", tall=len(rows) > 40)
    return Section("ratios", _RATIOS, body, {"ratios": ratios_chart(rows, space)}, "Kept widths")


def ratio_rows(space: WidthSpace, widths: Widths, uniform: Widths) -> list[dict[str, Any]]:
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


def ratios_chart(rows: list[dict[str, Any]], space: WidthSpace) -> Chart:
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
