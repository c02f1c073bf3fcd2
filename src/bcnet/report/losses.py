"""Training loss by stage."""

from __future__ import annotations

from typing import Any

import altair as alt
from markupsafe import Markup

from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, Section, figure, not_yet, paragraph
from bcnet.report.look import ORIGINAL, SEARCHED, UNIFORM, colours_of, spec, stack_layers, tip
from bcnet.run.result import NETWORKS

_TITLE = "Training loss"
_COLOURS = {"supernet": "green", "original": ORIGINAL, "Uniform": UNIFORM, "searched": SEARCHED}
_DASHES = {"supernet": [1, 0], "original": [1, 0], "Uniform": [7, 3], "searched": [1, 0]}


def section(evidence: Evidence) -> Section:
    """Return the losses of the supernet and of the final networks."""
    body = Markup("")
    charts = {}
    curves = evidence.curves
    if "supernet" in curves:
        charts["loss-supernet"] = chart({"supernet": curves["supernet"].rows("supernet")})
        caption = "Supernet: mean over its paths; the band spans the widths that were drawn, from best to worst."
        body += figure("loss-supernet", "Training loss of the supernet by epoch", caption)
    final = {stage: curves[stage].rows(stage) for stage in NETWORKS.values() if stage in curves}
    if final:
        charts["loss-networks"] = chart(final)
        caption = (
            f"Networks {evidence.training_words} by the same recipe; the band is the spread within a bin of steps."
        )
        body += figure("loss-networks", "Training loss of the final networks by epoch", caption)
    going = [stage for stage, curve in curves.items() if not curve.complete]
    if going:
        body += paragraph(f"Up to the last checkpoint of: {', '.join(going)}.")
    if evidence.result and (notes := evidence.result.training_notes):
        body += paragraph(notes)
    return Section("losses", _TITLE, body or not_yet("No loss has been recorded yet."), charts, "Loss")


def chart(rows: dict[str, list[dict[str, Any]]], name: str = "") -> Chart:
    """Return a line with its band for each stage; `name` identifies the rows if the page replaces them."""
    stages = list(rows)
    epoch = alt.X("epoch:Q", title="epoch", scale=alt.Scale(nice=False, zero=True))
    loss: dict[str, Any] = {"title": "loss", "scale": alt.Scale(zero=False)}
    legend = alt.Legend(symbolType="stroke", symbolSize=300) if len(stages) > 1 else None
    shade = alt.Color("stage:N", scale=colours_of(stages, [_COLOURS[stage] for stage in stages]), legend=legend)
    dashes = alt.Scale(domain=stages, range=[_DASHES[stage] for stage in stages])
    tooltip = [
        tip("stage"),
        tip("epoch", form=".2f"),
        tip("loss", "mean loss", ".4f"),
        tip("low", "smallest", ".4f"),
        tip("high", "largest", ".4f"),
    ]
    band = alt.Chart().mark_area(opacity=0.15).encode(x=epoch, y=alt.Y("low:Q", **loss), y2=alt.Y2("high"), color=shade)
    line = alt.Chart().mark_line(strokeWidth=2)
    line = line.encode(
        x=epoch,
        y=alt.Y("loss:Q", **loss),
        color=shade,
        strokeDash=alt.StrokeDash("stage:N", scale=dashes, legend=legend),
    )
    # Invisible points are larger targets for the pointer than a line.
    points = alt.Chart().mark_point(opacity=0, size=140)
    points = points.encode(x=epoch, y=alt.Y("loss:Q", **loss), color=shade, tooltip=tooltip)
    every = [row for stage in stages for row in rows[stage]]
    return spec(stack_layers(every, band, line, points, name=name), "Training loss of " + ", ".join(stages), height=220)
