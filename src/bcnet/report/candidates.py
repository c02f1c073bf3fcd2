"""Charts of accuracy against multiply-adds: the trained networks, and every candidate with its profile."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
from markupsafe import Markup

from bcnet.display import score_text
from bcnet.methods import TrainingsMethod
from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, Section, capitalise, figure, not_yet, paragraph, piece
from bcnet.report.look import (
    ORIGINAL,
    PICKED,
    SEARCHED,
    UNIFORM,
    colour,
    colours_of,
    inline,
    macs_axis,
    metric_axis,
    names_axis,
    ratio_axis,
    score_axis,
    shapes_of,
    spec,
    stack_layers,
    tip,
)
from bcnet.run.result import NETWORKS
from bcnet.searchers import ModelBased
from bcnet.space import Widths, WidthSpace

_COLOURS = (ORIGINAL, UNIFORM, SEARCHED)
_SHAPES = ("square", "triangle-up", "circle")


def section(evidence: Evidence) -> Section:
    """Return both charts, and the profile of the selected candidate."""
    title = "Accuracy against multiply-adds"
    body = Markup("")
    charts = {}
    if evidence.networks:
        charts["networks"] = networks_chart(evidence)
        name = capitalise(evidence.metric_of_test.name)
        label = f"{name} of the trained networks against their multiply-adds, with the budget"
        bars = "bars are 95 % intervals, the dashed line the budget"
        caption = f"Networks {evidence.training_words}, on the test images; {bars}."
        body += figure("networks", label, caption)
    if not evidence.searches:
        return Section("candidates", title, body or not_yet("No network has been trained yet."), charts, "Accuracy")
    if evidence.space is None or not evidence.evaluations:
        return Section("candidates", title, body + not_yet("No candidate has been scored yet."), charts, "Accuracy")
    charts |= {"candidates": candidates_chart(evidence), "profile": profile_chart(evidence)}
    text = (
        f"Each of the {len(evidence.evaluations):,} dots is a candidate: a width for every group, "
        f"{_describe_scores(evidence)} and are only comparable with each other. Hover or tap shows widths; a click "
        "shows the candidate's profile below."
    )
    method = evidence.settings.method
    longer = getattr(method, "finalist_epochs", None)
    if longer is not None:
        text += f" The best of them were then trained for {longer} epochs, which decided."
    if isinstance(method, TrainingsMethod) and method.continues_best:
        text += " The best one's own training then went on to its end, on all training images."
    label = f"Scores of {len(evidence.evaluations)} candidates against their multiply-adds, with the front"
    caption = (
        "The line joins the front, candidates that no other beats in score at no more MACs; the ring is the network "
        "that was trained, the diamond the profile shown below."
    )
    body += paragraph(text) + figure("candidates", label, caption) + profile_figure(evidence)
    return Section("candidates", title, body, charts, "Accuracy")


def _describe_scores(evidence: Evidence) -> str:
    held_out = "on training images held out from it. Scores"
    if evidence.settings.method.trains_candidates:
        return f"scored by a short training of its own {held_out} of short trainings are lower than those of long ones,"
    start = ", which started from the trained original," if evidence.settings.method.inherits else ""
    weights = f"by the shared weights of the supernet{start}"
    return f"scored {weights} {held_out} of shared weights are lower than those of trained networks,"


def candidates_chart(evidence: Evidence) -> Chart:
    """Return the chart of every candidate, the front, the budget, trained widths and the selection."""
    rows = _rows(evidence)
    limit = [evidence.budget.macs] if evidence.budget is not None and evidence.budget.macs is not None else []
    macs = alt.X("macs:Q", **macs_axis([*(c.cost.macs for c in evidence.evaluations), *limit]))
    score = alt.Y("score:Q", **score_axis(evidence.metric, [c.score for c in evidence.evaluations]))
    picked = [row for row in rows if row["trained"]] or rows[:1]
    reference = evidence.space.reference.macs  # type: ignore[union-attr]
    marks = [front_line(), _trained_ring(), _picked_diamond(picked), dots(reference)]  # dots on top, for the pointer
    layers = [*budget_layers(evidence, macs), *(mark.encode(x=macs, y=score) for mark in marks)]
    return spec(stack_layers(rows, *layers, name="candidates"), "Score against multiply-adds", height=380)


def _rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the chart's data for each candidate, in the order of the search."""
    on_front = {c.widths for c in evidence.front}
    trained = evidence.networks.get("searched")
    size = getattr(evidence.settings.method, "population", ModelBased.batch)
    return [
        {
            "number": number,
            "generation": number // size + 1,
            "macs": c.cost.macs,
            "params": c.cost.params,
            "score": c.score,
            "text": score_text(c.score, evidence.metric),
            "widths": list(c.widths),
            "front": c.widths in on_front,
            "trained": trained is not None and c.widths == trained.widths,
        }
        for number, c in enumerate(evidence.evaluations)
    ]


def dots(reference_macs: int) -> Any:
    """Return a dot for each row: number, generation, macs, params, score, text, widths, front."""
    every = alt.Chart(name="dots").transform_calculate(list="join(datum.widths, ', ')")
    every = every.transform_calculate(ratio=f"datum.macs / {reference_macs}")
    return every.mark_circle(size=34, cursor="pointer").encode(
        opacity=alt.value(0.5),
        color=alt.condition("datum.front", alt.value(colour(SEARCHED)), alt.value(colour("dot"))),
        tooltip=[
            tip("number", "candidate"),
            tip("generation"),
            tip("text", "score"),
            tip("macs", "MACs", ","),
            tip("ratio", "of original", ".3f"),
            tip("params", "parameters", ","),
            tip("list", "widths"),
        ],
    )


def front_line() -> Any:
    """Return a line that joins the rows of the front."""
    front = alt.Chart().transform_filter("datum.front")
    return front.mark_line(strokeWidth=2, color=colour(SEARCHED), interpolate="step-after")


def _trained_ring() -> Any:
    trained = alt.Chart().transform_filter("datum.trained")
    return trained.mark_point(size=190, strokeWidth=2.5, color=colour(SEARCHED), filled=False)


def _picked_diamond(picked: list[dict[str, Any]]) -> Any:
    chosen = alt.Chart(inline(picked, "picked"))
    return chosen.mark_point(shape="diamond", size=130, filled=True, fill=colour(PICKED), opacity=1)


def networks_chart(evidence: Evidence) -> Chart:
    """Return the chart of the trained networks' test figures with 95 % intervals."""
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
    """Return a line at the budget for a chart with an axis of MACs; nothing if only other measures are limited."""
    limit = None if evidence.budget is None else evidence.budget.macs
    if limit is None:
        return []
    place = alt.Chart(inline([{"macs": limit, "text": "budget"}]))
    line = place.mark_rule(strokeDash=[5, 4], strokeWidth=1.5).encode(x=macs)
    name = place.mark_text(baseline="bottom", dy=-3, y=0, color=colour("muted")).encode(x=macs, text=alt.Text("text:N"))
    return [line, name]


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
