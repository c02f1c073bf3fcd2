"""Profile of a candidate: kept ratio of every group beside the original and Uniform."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
from markupsafe import Markup

from bcnet.display import score_text
from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, figure, piece
from bcnet.report.look import PICKED, UNIFORM, colour, names_axis, ratio_axis, spec, stack_layers, tip
from bcnet.space import Widths, WidthSpace

_LISTED = 12  # candidates of the front in the menu


def profile_rows(space: WidthSpace, widths: Widths, uniform: Widths | None) -> list[dict[str, Any]]:
    """Return one row per group: its width beside the original's and, if known, Uniform's."""
    beside = uniform or (None,) * len(widths)
    return [
        {"group": g.name, "full": full, "width": w, "ratio": w / full, "uniform": None if u is None else u / full}
        for g, full, w, u in zip(space.groups, space.original_widths, widths, beside, strict=True)
    ]


def profile_chart(evidence: Evidence) -> Chart:
    """Return the chart of one candidate's kept ratios; the page replaces its rows."""
    space = evidence.space
    best = evidence.best
    uniform = evidence.uniform
    assert space is not None
    rows = profile_rows(space, best or evidence.evaluations[0].widths, uniform)
    ratio = ratio_axis(space)
    group = names_axis("group", [group.name for group in space.groups])
    tooltip = [
        tip("group"),
        tip("width"),
        tip("full", "original"),
        tip("ratio", "kept", ".1%"),
        tip("uniform", "Uniform keeps", ".1%"),
    ]
    full = alt.Chart().transform_calculate(one="1").mark_bar(height={"band": 0.8}, color=colour("bar"))
    full = full.encode(x=alt.X("one:Q", **ratio), y=group, tooltip=tooltip)
    kept = alt.Chart().mark_bar(height={"band": 0.5}, color=colour(PICKED))
    kept = kept.encode(x=alt.X("ratio:Q", **ratio), y=group, tooltip=tooltip)
    ticks = alt.Chart().mark_tick(thickness=2.5, color=colour(UNIFORM), height={"band": 0.9})
    ticks = ticks.encode(x=alt.X("uniform:Q", **ratio), y=group)
    numbers = alt.Chart(name="widths").transform_calculate(text="datum.width + ' of ' + datum.full")
    numbers = numbers.mark_text(align="left", dx=6).encode(x=alt.value("width"), y=group, text=alt.Text("text:N"))
    whole = stack_layers(rows, full, kept, ticks, numbers, name="profile")
    return spec(whole, "Kept ratio of every group of the candidate", rows=len(rows))


def profile_figure(evidence: Evidence) -> Markup:
    """Return the menu of candidates, and the place of the chart."""
    caption = "Widths of the candidate beside the original (grey) and Uniform (tick)."
    label = "Kept ratio of every group of the candidate that is chosen"
    return _picker(evidence) + figure("profile", label, caption, tall=len(evidence.evaluations[0].widths) > 40)


def profile_data(evidence: Evidence) -> dict[str, Any]:
    """Return the groups with full and Uniform widths, for the script that shows any candidate's profile."""
    if evidence.space is None:
        return {}
    space = evidence.space
    return {"groups": profile_rows(space, space.original_widths, evidence.uniform), "reference": space.reference.macs}


def _picker(evidence: Evidence) -> Markup:
    """Return a menu as an alternative to clicking dots, and a line that names the selected candidate."""
    numbers = {c.widths: number for number, c in enumerate(evidence.evaluations)}
    front = evidence.front
    step = max(1, math.ceil(len(front) / _LISTED))
    listed = front[::-1][::step]
    options = []
    trained = evidence.networks.get("searched")
    if trained is not None and trained.widths in numbers:
        options.append((numbers[trained.widths], "the one that was trained"))
    options += [
        (numbers[c.widths], f"front: {score_text(c.score, evidence.metric)} at {c.cost.macs:,} MACs") for c in listed
    ]
    options = options or [(0, "the first one")]
    return piece("picker", options)
