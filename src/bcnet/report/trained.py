"""The final networks: what they did on the test images against multiply-adds, beside the budget."""

from __future__ import annotations

import altair as alt

from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, capitalise
from bcnet.report.look import (
    ORIGINAL,
    SEARCHED,
    UNIFORM,
    colour,
    colours_of,
    inline,
    macs_axis,
    metric_axis,
    shapes_of,
    spec,
    stack_layers,
    tip,
)
from bcnet.run.finished import NETWORKS

_COLOURS = (ORIGINAL, UNIFORM, SEARCHED)
_SHAPES = ("square", "triangle-up", "circle")


def networks_chart(evidence: Evidence) -> Chart:
    """The test figure of the trained networks with 95 % intervals."""
    rows = []
    for n in evidence.networks.values():
        facts = {"network": n.label, "macs": n.cost.macs, "params": n.cost.params, "value": n.value}
        rows.append(facts | {"low": n.low, "high": n.high})
    metric = evidence.metric_of_test
    labels = [NETWORKS[key] for key in NETWORKS if key in evidence.networks]
    limit = [evidence.budget.macs] if evidence.budget is not None and evidence.budget.macs is not None else []
    macs = alt.X("macs:Q", **macs_axis([*(row["macs"] for row in rows), *limit], zero=True))
    test = metric_axis(metric, [row[end] for row in rows for end in ("low", "high")])
    colours = colours_of(labels, _COLOURS[: len(labels)])
    legend = alt.Legend(symbolSize=110)
    points = alt.Chart().mark_point(filled=True, size=110, opacity=1)
    points = points.encode(
        x=macs,
        y=alt.Y("value:Q", **test),
        color=alt.Color("network:N", scale=colours, legend=legend),
        shape=alt.Shape("network:N", scale=shapes_of(labels, _SHAPES[: len(labels)]), legend=legend),
        tooltip=[
            tip("network"),
            tip("macs", "MACs", ","),
            tip("params", "parameters", ","),
            tip("value", metric.column, f".{metric.digits}f"),
        ],
    )
    intervals = alt.Chart().mark_rule(strokeWidth=2, opacity=0.7)
    intervals = intervals.encode(
        x=macs, y=alt.Y("low:Q", **test), y2=alt.Y2("high"), color=alt.Color("network:N", scale=colours)
    )
    whole = stack_layers(rows, *budget_layers(evidence, macs), intervals, points)
    return spec(whole, f"{capitalise(metric.name)} against multiply-adds", height=190)


def budget_layers(evidence: Evidence, macs: alt.X) -> list[alt.Chart]:
    """The budget as a line across a chart whose axis is of MACs; nothing where only other measures are limited."""
    limit = None if evidence.budget is None else evidence.budget.macs
    if limit is None:
        return []
    place = alt.Chart(inline([{"macs": limit, "text": "budget"}]))
    line = place.mark_rule(strokeDash=[5, 4], strokeWidth=1.5).encode(x=macs)
    name = place.mark_text(baseline="bottom", dy=-3, y=0, color=colour("muted")).encode(x=macs, text=alt.Text("text:N"))
    return [line, name]
