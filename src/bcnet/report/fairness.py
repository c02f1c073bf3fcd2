"""Fairness of a supernet: how often each channel was trained."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
from markupsafe import Markup

from bcnet.costs import IntArray
from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, Section, figure, fold, not_yet, paragraph, table
from bcnet.report.look import SEARCHED, colour, spec, stack_layers, tip

_TITLE = "Training of every channel"


def section(evidence: Evidence) -> Section:
    """Return the chart of counts over the channels of each group, and a verdict on fairness."""
    if not evidence.counts or evidence.space is None:
        return Section("fairness", _TITLE, not_yet("Channels are counted while the supernet trains."))
    names = [group.name for group in evidence.space.groups]
    counts = evidence.counts
    label = "How often each channel was trained, along the channels of every group"
    caption = "Counted while training, one line per group, from its first channel to its last; level lines are fair."
    body = paragraph(_verdict(evidence)) + figure("fairness", label, caption) + _details(names, counts)
    return Section("fairness", _TITLE, body, {"fairness": chart(names, counts)}, "Fairness")


def _verdict(evidence: Evidence) -> str:
    spreads = [int(c.max() - c.min()) for c in evidence.counts]
    uneven = sum(spread > 0 for spread in spreads)
    total = sum(int(c.sum()) for c in evidence.counts)
    strategy = getattr(evidence.settings.method, "strategy", "")
    start = f"Paths that went through each channel: {total:,} counted in all, strategy {strategy}. "
    if not uneven:
        return start + f"In all {len(spreads)} groups every channel was trained exactly as often as every other."
    worst = max(float(c.max()) / max(1, int(c.min())) for c in evidence.counts)
    return start + (
        f"In {uneven} of {len(spreads)} groups some channels were trained more often than others, up to {worst:.3g} "
        "times as often."
    )


def _details(names: list[str], counts: tuple[IntArray, ...]) -> Markup:
    rows = [
        (name, f"{len(c):,}", f"{c.min():,}", f"{c.max():,}", f"{c.max() - c.min():,}")
        for name, c in zip(names, counts, strict=True)
    ]
    head = ("group", "channels", "fewest times", "most times", "difference")
    inner = table(head, rows, "Times that the channels of each group were trained")
    return fold("Counts of every group", inner)


def runs_of(name: str, counts: IntArray) -> list[dict[str, Any]]:
    """Return the counts at the channels where they change, which is exact and short."""
    length = len(counts)
    starts = [0, *(np.flatnonzero(np.diff(counts)) + 1).tolist()]
    rows = [
        {"group": name, "place": start / length, "channel": start + 1, "count": int(counts[start])} for start in starts
    ]
    return [*rows, {"group": name, "place": 1.0, "channel": length, "count": int(counts[-1])}]


def chart(names: list[str], counts: tuple[IntArray, ...]) -> Chart:
    """Return stepped lines over the channels."""
    rows = [row for name, c in zip(names, counts, strict=True) for row in runs_of(name, c)]
    ends = alt.Axis(
        values=[0, 1],
        labelExpr="datum.value ? 'last' : 'first'",
        labelAlign=alt.ExprRef("datum.value ? 'right' : 'left'"),
    )
    place = alt.X("place:Q", title="place of the channel in its group", axis=ends, scale=alt.Scale(domain=[0, 1]))
    times = alt.Y("count:Q", title="times trained", scale=alt.Scale(zero=True))
    lines = alt.Chart().mark_line(interpolate="step-after", color=colour(SEARCHED), opacity=0.75)
    lines = lines.encode(x=place, y=times, detail=alt.Detail("group:N"))
    points = alt.Chart().mark_point(filled=True, size=40, color=colour(SEARCHED), opacity=0.75)
    tooltip = [tip("group"), tip("channel"), tip("count", "times trained", ",")]
    points = points.encode(x=place, y=times, tooltip=tooltip)
    return spec(stack_layers(rows, lines, points), "Times each channel was trained", height=150)
