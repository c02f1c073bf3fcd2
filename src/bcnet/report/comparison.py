"""Comparison page of several runs: fronts, results, and differences of their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
from markupsafe import Markup

from bcnet.display import duration, score_text, trainings_text
from bcnet.report.evidence import Evidence
from bcnet.report.html import (
    NONE,
    Chart,
    Section,
    capitalise,
    count,
    figure,
    not_yet,
    page_heading,
    paragraph,
    piece,
    table,
)
from bcnet.report.look import (
    SERIES,
    SHAPES,
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
from bcnet.report.page import page
from bcnet.run.result import NETWORKS
from bcnet.run.run import Network
from bcnet.run.score import search_seconds

Runs = Sequence[tuple[str, Evidence]]  # with distinct names


def comparison_page(evidences: Sequence[Evidence]) -> str:
    """Return the HTML page that compares at least two runs."""
    runs = list(zip(run_names(evidences), evidences, strict=True))
    sections = [_results(runs), _trained_section(runs), _fronts(runs), *_widths(runs), _settings(runs), _time(runs)]
    subjects = list(dict.fromkeys(e.name for e in evidences))
    title = f"{len(runs)} runs: {', '.join(subjects)}"
    top = page_heading(title) + paragraph(_headline(runs), "headline") + _list_unfinished(runs)
    return page(title, top, sections, "Made by bcnet from the runs' files only.")


def run_names(evidences: Sequence[Evidence]) -> list[str]:
    """Return the folders' names, with as much of their paths as makes them distinct."""
    parts = [evidence.path.absolute().parts for evidence in evidences]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(p[-length:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def _headline(runs: Runs) -> str:
    trained = [(name, e.networks["searched"]) for name, e in runs if "searched" in e.networks]
    if not trained:
        return "None of the runs has trained the network it searched yet."
    name, best = max(trained, key=lambda pair: pair[1].value * (1 if pair[1].metric.higher else -1))
    lean, least = min(trained, key=lambda pair: pair[1].cost.macs)
    if name == lean:
        return f"The most accurate and the cheapest is {name}: {_test(best)}, {best.cost.macs:,} MACs."
    return (
        f"The most accurate is {name} with {_test(best)} at {best.cost.macs:,} MACs; the cheapest is "
        f"{lean} with {least.metric.text(least.value)} at {least.cost.macs:,} MACs."
    )


def _test(network: Network) -> str:
    return f"{network.metric.text(network.value)} {network.metric.name}"


def _metric_heading(runs: Runs) -> str:
    """Return the heading of the metric, for all tasks present."""
    return " or ".join(dict.fromkeys(e.metric_of_test.column for _, e in runs if e.networks))


def _list_unfinished(runs: Runs) -> Markup:
    names = [name for name, evidence in runs if evidence.result is None]
    if not names:
        return Markup("")
    return piece("unfinished", names)


def _results(runs: Runs) -> Section:
    rows = [
        (name, n.label, f"{n.cost.macs:,}", f"{100 * n.cost.macs / e.space.reference.macs:.1f} %", f"{n.cost.params:,}",
         f"{n.value:.{n.metric.digits}f}", f"{n.images:,}")
        for name, e in runs if e.space is not None
        for n in (e.networks[key] for key in NETWORKS if key in e.networks)
    ]  # fmt: skip
    if not rows:
        return Section("results", "Results", not_yet("No network has been trained to its end yet."))
    head = ("run", "network", "MACs", "of original", "parameters", _metric_heading(runs), "test images")
    strong = [number for number, row in enumerate(rows) if row[1] == NETWORKS["searched"]]
    return Section("results", "Results", table(head, rows, "Networks of every run", texts=2, strong=strong))


def _trained_section(runs: Runs) -> Section:
    rows = [
        {"run": name, "network": n.label, "macs": n.cost.macs, "params": n.cost.params, "value": n.value}
        for name, e in runs
        for n in e.networks.values()
    ]
    title = "Trained networks"
    if not rows:
        return Section("trained", title, not_yet("No network has been trained to its end yet."))
    metric = next(e.metric_of_test for _, e in runs if e.networks)
    limits = [e.budget.macs for _, e in runs if e.budget is not None and e.budget.macs is not None]
    shapes = shapes_of(list(NETWORKS.values()), ("square", "triangle-up", "circle"))
    points = alt.Chart(inline(rows)).mark_point(filled=True, size=110, opacity=0.9)
    points = points.encode(
        x=alt.X("macs:Q", **macs_axis([*(row["macs"] for row in rows), *limits], zero=True)),
        y=alt.Y("value:Q", **metric_axis(metric, [row["value"] for row in rows])),
        color=_colours(runs),
        shape=alt.Shape("network:N", scale=shapes, legend=alt.Legend()),
        tooltip=[
            tip("run"),
            tip("network"),
            tip("macs", "MACs", ","),
            tip("params", "parameters", ","),
            tip("value", _metric_heading(runs), f".{metric.digits}f"),
        ],
    )
    description = f"{capitalise(metric.name)} against multiply-adds of the networks of every run"
    chart = spec(points, description, height=260)
    label = f"{capitalise(metric.name)} of the trained networks of every run against their multiply-adds"
    return Section(
        "trained",
        title,
        figure("trained", label, "Fully trained, and tested once."),
        {"trained": chart},
    )


def _fronts(runs: Runs) -> Section:
    title = "Fronts"
    scored = [(name, e) for name, e in runs if e.front]
    if not scored:
        return Section("fronts", title, not_yet("No candidate has been scored yet."))
    metrics = {e.metric for _, e in scored}
    if len(metrics) > 1:
        text = (
            f"The runs rank candidates by different scores, {' and '.join(sorted(metrics))}: they cannot share an axis."
        )
        return Section("fronts", title, not_yet(text))
    rows = [
        {"run": name, "macs": c.cost.macs, "score": c.score, "text": score_text(c.score, e.metric),
         "params": c.cost.params, "list": ", ".join(map(str, c.widths))}
        for name, e in scored for c in e.front
    ]  # fmt: skip
    text = (
        "The candidates of each run that no other of it beats in score at no more MACs, as its own supernet scored "
        "them: fronts of differently trained supernets say little about each other."
    )
    chart = _front_chart(scored, rows)
    label = f"Fronts of {len(scored)} runs: score against multiply-adds"
    body = paragraph(text) + figure("fronts", label, "Hover or tap shows the widths of a candidate.")
    return Section("fronts", title, body, {"fronts": chart})


def _front_chart(runs: Runs, rows: list[dict[str, Any]]) -> Chart:
    macs = alt.X("macs:Q", **macs_axis([row["macs"] for row in rows]))
    score = alt.Y("score:Q", **score_axis(runs[0][1].metric, [row["score"] for row in rows]))
    tooltip = [
        tip("run"),
        tip("text", "score"),
        tip("macs", "MACs", ","),
        tip("params", "parameters", ","),
        tip("list", "widths"),
    ]
    lines = alt.Chart().mark_line(interpolate="step-after", strokeWidth=2)
    lines = lines.encode(x=macs, y=score, color=_colours(runs))
    dots = alt.Chart().mark_point(filled=True, size=60, opacity=0.9)
    dots = dots.encode(x=macs, y=score, color=_colours(runs), shape=_shapes(runs), tooltip=tooltip)
    return spec(stack_layers(rows, lines, dots), "Fronts of the runs", height=360)


def _widths(runs: Runs) -> list[Section]:
    """Return charts of kept ratios side by side, if the runs have the same groups."""
    known = [(name, e, e.best) for name, e in runs if e.space is not None and e.best is not None]
    spaces = [e.space for _, e, _ in known if e.space is not None]
    # Ratios of different networks have nothing in common, so the chart needs equal groups.
    groups = {tuple(zip((g.name for g in s.groups), s.original_widths, strict=True)) for s in spaces}
    if len(known) < 2 or len(groups) != 1:
        return []
    names = [name for name, _ in next(iter(groups))]
    rows = [
        {"run": name, "group": g.name, "width": w, "full": full, "ratio": w / full}
        for name, e, best in known
        if e.space is not None
        for g, full, w in zip(e.space.groups, e.space.original_widths, best, strict=True)
    ]
    mine = [(name, e) for name, e, _ in known]
    points = alt.Chart(inline(rows)).mark_point(filled=True, size=80, opacity=0.9)
    points = points.encode(
        x=alt.X("ratio:Q", **ratio_axis(*spaces)),
        y=names_axis("group", names, grid=True),
        color=_colours(mine),
        shape=_shapes(mine),
        tooltip=[tip("run"), tip("group"), tip("width"), tip("full", "original")],
    )
    chart = spec(points, "Kept ratio of every group in every run", rows=len(names))
    caption = "Trained widths, or the best so far if none are trained."
    body = figure("widths", "Kept ratio of every group in every run", caption, tall=len(names) > 40)
    return [Section("widths", "Kept widths", body, {"widths": chart})]


def _settings(runs: Runs) -> Section:
    settings = {name: e.settings.flatten() for name, e in runs}
    keys = dict.fromkeys(key for values in settings.values() for key in values)
    rows = [
        (key, *(str(values.get(key, NONE)) for values in settings.values()))
        for key in keys
        if len({str(values.get(key)) for values in settings.values()}) > 1
    ]
    title = "Differing settings"
    if not rows:
        return Section("settings", title, paragraph("The runs have the same settings throughout."))
    head = ("setting", *settings)
    return Section("settings", title, table(head, rows, "Settings that differ between the runs", texts=len(head)))


def _time(runs: Runs) -> Section:
    stages = dict.fromkeys(stage for _, e in runs for stage in e.seconds)
    rows = [(stage, *(duration(e.seconds[stage]) if stage in e.seconds else NONE for _, e in runs)) for stage in stages]
    if not rows:
        return Section("time", "Time", not_yet("No stage has ended yet."))
    total = ("all stages", *(duration(sum(e.seconds.values())) for _, e in runs))
    searched = [search_seconds(e.seconds)[1] for _, e in runs]
    trainings = ("search, in trainings of the original", *(NONE if s is None else trainings_text(s) for s in searched))
    evaluated = ("candidates", *(count(len(e.evaluations)) for _, e in runs))
    head = ("stage", *(name for name, _ in runs))
    return Section("time", "Time", table(head, [*rows, trainings, evaluated], "Time spent per stage", total=total))


def _colours(runs: Runs) -> alt.Color:
    names = [name for name, _ in runs]
    scale = colours_of(names, _cycle(SERIES, len(names)))
    return alt.Color("run:N", scale=scale, legend=alt.Legend(columns=2))


def _shapes(runs: Runs) -> alt.Shape:
    names = [name for name, _ in runs]
    scale = shapes_of(names, _cycle(SHAPES, len(names)))
    return alt.Shape("run:N", scale=scale, legend=alt.Legend(columns=2))


def _cycle(values: Sequence[str], length: int) -> list[str]:
    return [values[number % len(values)] for number in range(length)]
