"""Training loss by stage."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, Section, figure, not_yet, paragraph
from bcnet.report.look import ORIGINAL, SEARCHED, UNIFORM, scale_of, spec
from bcnet.run.finished import NETWORKS
from bcnet.stages.result import skipped_note

_TITLE = "Training loss"
_COLOURS = {"supernet": "green", "original": ORIGINAL, "Uniform": UNIFORM, "searched": SEARCHED}
_DASHES = {"supernet": [1, 0], "original": [1, 0], "Uniform": [7, 3], "searched": [1, 0]}


def section(evidence: Evidence) -> Section:
    """The supernet's loss, and those of the final networks."""
    body, charts = Markup(""), {}
    curves = evidence.curves
    if "supernet" in curves:
        charts["loss-supernet"] = chart({"supernet": curves["supernet"].rows("supernet")})
        caption = "Supernet: mean over its paths; the band spans the widths that were drawn, from best to worst."
        body += figure("loss-supernet", "Training loss of the supernet by epoch", caption)
    final = {stage: curves[stage].rows(stage) for stage in NETWORKS.values() if stage in curves}
    if final:
        charts["loss-networks"] = chart(final)
        caption = f"Networks {evidence.training} by the same recipe; the band is the spread within a bin of steps."
        body += figure("loss-networks", "Training loss of the final networks by epoch", caption)
    going = [stage for stage, curve in curves.items() if not curve.complete]
    if going:
        body += paragraph(f"Up to the last checkpoint of: {', '.join(going)}.")
    if evidence.result and (note := skipped_note(evidence.result)):
        body += paragraph(note)
    return Section("losses", _TITLE, body or not_yet("No loss has been recorded yet."), charts, "Loss")


def chart(rows: dict[str, list[dict[str, Any]]]) -> Chart:
    """A line with its band for each stage."""
    stages = list(rows)
    x = {"field": "epoch", "type": "quantitative", "title": "epoch", "scale": {"nice": False, "zero": True}}
    y = {"type": "quantitative", "title": "loss", "scale": {"zero": False}}
    shade = {"field": "stage", "type": "nominal", "scale": scale_of(stages, [_COLOURS[s] for s in stages])}
    dash = {"field": "stage", "type": "nominal", "scale": {"domain": stages, "range": [_DASHES[s] for s in stages]}}
    legend = {"symbolType": "stroke", "symbolSize": 300} if len(stages) > 1 else None
    tooltip = [
        {"field": "stage"},
        {"field": "epoch", "format": ".2f"},
        {"field": "loss", "format": ".4f", "title": "mean loss"},
        {"field": "low", "format": ".4f", "title": "smallest"},
        {"field": "high", "format": ".4f", "title": "largest"},
    ]
    layers = [
        {
            "mark": {"type": "area", "opacity": 0.15},
            "encoding": {
                "x": x,
                "y": {"field": "low", **y},
                "y2": {"field": "high"},
                "color": {**shade, "legend": legend},
            },
        },
        {
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {
                "x": x,
                "y": {"field": "loss", **y},
                "color": {**shade, "legend": legend},
                "strokeDash": {**dash, "legend": legend},
            },
        },
        {
            "mark": {"type": "point", "opacity": 0, "size": 140},
            "encoding": {"x": x, "y": {"field": "loss", **y}, "color": {**shade, "legend": legend}, "tooltip": tooltip},
        },
    ]
    values = [row for stage in stages for row in rows[stage]]
    name = "Training loss of " + ", ".join(stages)
    return spec(name, height=220, data={"values": values}, layer=layers)
