"""The supernet in a report: how often each channel was trained, and a heat map of the prior, with its certificate."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
from markupsafe import Markup

from bcnet.costs import IntArray
from bcnet.prior import Prior
from bcnet.report.evidence import Evidence, expected_macs
from bcnet.report.html import Chart, Section, definition_list, figure, fold, not_yet, paragraph, table
from bcnet.report.look import SEARCHED, colour, inline, names_axis, ratio_axis, spec, stack_layers, tip
from bcnet.space import Widths

_FAIRNESS = "Training of every channel"
_PRIOR = "Prior over widths"
_DIGITS = 5


def fairness_section(evidence: Evidence) -> Section:
    """Return the chart of counts over the channels of each group, and a verdict on fairness."""
    if not evidence.counts or evidence.space is None:
        return Section("fairness", _FAIRNESS, not_yet("Channels are counted while the supernet trains."))
    names = [group.name for group in evidence.space.groups]
    counts = evidence.counts
    label = "How often each channel was trained, along the channels of every group"
    caption = "Counted while training, one line per group, from its first channel to its last; level lines are fair."
    body = paragraph(_verdict(evidence)) + figure("fairness", label, caption) + _details(names, counts)
    return Section("fairness", _FAIRNESS, body, {"fairness": fairness_chart(names, counts)}, "Fairness")


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


def fairness_chart(names: list[str], counts: tuple[IntArray, ...]) -> Chart:
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


def prior_section(evidence: Evidence) -> Section:
    """Return the heat map, and the certified quality of the prior."""
    prior = evidence.prior
    if prior is None:
        return Section("prior", _PRIOR, not_yet("The prior is learnt when the supernet is trained."))
    text = (
        "The width preferences in the supernet's training losses, under the budget: the first generation of the "
        "search is drawn from these distributions. Darker is more likely; each row sums to one."
    )
    label = f"Probability of every width in each of {len(prior.rows)} groups"
    caption = "Columns are kept ratios of the group's width; hover shows the width and its potential error."
    if "searched" in evidence.networks:
        caption += " The dot is the width that was trained."
    rows = cells(prior)
    body = paragraph(text) + figure("prior", label, caption, tall=len(prior.rows) > 40) + certificate(prior)
    return Section("prior", _PRIOR, body, {"prior": prior_chart(prior, rows, _trained_widths(evidence))}, "Prior")


def certificate(prior: Prior) -> Any:
    """Return objective, bound and gap of the optimum, and the expected cost of samples."""
    spans = sum(float(error.max() - error.min()) for error in prior.errors)
    optimum = prior.lower_bound + prior.gap * spans
    objective = sum(float(row @ error) for row, error in zip(prior.rows, prior.errors, strict=True))
    macs = expected_macs(prior)
    facts = {
        "least expected error found": f"{optimum:.{_DIGITS}f}",
        "lower bound for any prior": f"{prior.lower_bound:.{_DIGITS}f}",
        "gap": f"{100 * prior.gap:.4f} % of the attainable range",
        "expected error of the prior above": f"{objective:.{_DIGITS}f}",
        "its expected MACs": f"{macs:,.0f}",
        "effective widths per group": f"{prior.effective_widths:.2f} (effective number)",
    }
    if prior.budget.macs is not None:
        facts["its expected MACs"] += f", {100 * macs / prior.budget.macs:.2f} % of the budget"
    explained = (
        "The certificate: the optimum puts almost all weight on one width per group, and its samples would all be the "
        "same. The prior above is the optimum softened until its samples differ and enough of them satisfy the budget; "
        "that costs the difference of the two expected errors. Errors are mean training losses, against the running "
        "mean."
    )
    return definition_list(facts) + paragraph(explained)


def _trained_widths(evidence: Evidence) -> Widths | None:
    return evidence.networks["searched"].widths if "searched" in evidence.networks else None


def cells(prior: Prior) -> list[dict[str, Any]]:
    """Return one row per group and width; `start` and `end` are the kept ratios that the cell spans."""
    rows = []
    originals = prior.space.original_widths
    for group, full, chances, errors in zip(prior.space.groups, originals, prior.rows, prior.errors, strict=True):
        before = 0.0
        for width, chance, error in zip(group.choices, chances.tolist(), errors.tolist(), strict=True):
            end = width / full
            cell = {"group": group.name, "width": width, "start": before, "end": end}
            rows.append(cell | {"chance": round(chance, 6), "error": round(error, _DIGITS)})
            before = end
    return rows


def prior_chart(prior: Prior, rows: list[dict[str, Any]], trained: Widths | None) -> Chart:
    """Return the cells, shaded by probability."""
    ratio = ratio_axis(prior.space, grid=False)
    group = names_axis("group", [group.name for group in prior.space.groups])
    strength = alt.Scale(type="sqrt", domain=[0, 1], range=[0, 1])
    cell = alt.Chart().mark_rect(fill=colour(SEARCHED), stroke=colour("grid"), strokeWidth=0.5)
    cell = cell.encode(
        x=alt.X("start:Q", **ratio),
        x2=alt.X2("end"),
        y=group,
        fillOpacity=alt.FillOpacity("chance:Q", scale=strength, legend=None),
        tooltip=[tip("group"), tip("width"), tip("chance", "probability", ".2%"), tip("error", "potential error")],
    )
    layers = [cell]
    if trained is not None:
        chosen = dict(zip((group.name for group in prior.space.groups), trained, strict=True))
        marks = [
            {"group": cell["group"], "middle": (cell["start"] + cell["end"]) / 2}
            for cell in rows
            if cell["width"] == chosen[cell["group"]]
        ]
        dot = alt.Chart(inline(marks)).mark_point(
            shape="circle", filled=True, size=40, color=colour("orange"), opacity=1
        )
        layers.append(dot.encode(x=alt.X("middle:Q", **ratio), y=group))
    return spec(stack_layers(rows, *layers), "Probability of every width", rows=len(prior.rows))
