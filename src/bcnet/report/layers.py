"""Table of layers: widths, multiply-adds and parameters before and after."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bcnet.report.evidence import Evidence
from bcnet.report.html import Section, not_yet, paragraph, table
from bcnet.report.ratios import group_of
from bcnet.space import Polynomial, Widths, WidthSpace

_TITLE = "Layers, before and after"
_OTHERS = "other layers"
Pair = tuple[int, int]  # before, after


@dataclass(frozen=True)
class Row:
    """A layer: its channels, MACs and parameters, each before and after. `group` is empty if it has none."""

    name: str
    group: str
    width: Pair | None
    macs: Pair
    params: Pair


def section(evidence: Evidence) -> Section:
    """Return the table for the trained widths, or the best so far."""
    space = evidence.space
    widths = evidence.best
    if space is None or widths is None:
        return Section("layers", _TITLE, not_yet("No widths have been found yet."))
    rows = layer_rows(space, widths)
    text = (
        f"Exact counts for one input, of the original and of {evidence.whose}. Batch norm and other layers without "
        "multiply-adds are added up in one row."
    )
    text += f" {space.uncounted_note}" if space.uncounted else ""
    before = [f"{what} before" for what in ("channels", "MACs", "parameters")]
    head = ("layer", "width group", before[0], "after", before[1], "after", "kept", before[2], "after", "kept")
    body = table(head, map(_cells, rows), "Layers before and after", total=_cells(total(rows)), texts=2)
    return Section("layers", _TITLE, paragraph(text) + body, short="Layers")


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
