"""The look of charts: colours that people of every colour vision tell apart, and Vega-Lite's settings.

Charts are drawn as SVG, whose colours are CSS variables: the page decides by `prefers-color-scheme` and by the medium
what they are, so that one chart serves light, dark and print. A picture outside the page takes the light ones.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from bcnet.display import axis_title
from bcnet.report.html import Chart
from bcnet.space import WidthSpace
from bcnet.tasks import Metric

# Okabe and Ito's palette, darkened or lightened to at least 3:1 against the paper. Shapes and labels say the same.
LIGHT = {
    "paper": "#ffffff", "raised": "#f5f7f9", "ink": "#1b1f24", "muted": "#57606a", "grid": "#e3e6ea",
    "line": "#8b949e", "dot": "#8b949e", "blue": "#0072b2", "orange": "#c75300", "green": "#00815e",
    "purple": "#a8427f", "sky": "#1f7fb8", "yellow": "#8a6d00", "bar": "#d3d8de",
}  # fmt: skip
DARK = {
    "paper": "#12161b", "raised": "#1b2129", "ink": "#e6eaef", "muted": "#a3adb8", "grid": "#2b333d",
    "line": "#6e7985", "dot": "#7d8894", "blue": "#56b4e9", "orange": "#f08a3c", "green": "#34c79b",
    "purple": "#e08fc0", "sky": "#8fd0f5", "yellow": "#f0e442", "bar": "#3a4450",
}  # fmt: skip
SERIES = ("blue", "orange", "green", "purple", "yellow", "sky", "ink")  # of runs, or of stages
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "stroke")
ORIGINAL = "muted"
UNIFORM = "orange"
SEARCHED = "blue"
PICKED = "purple"
AnyChart = alt.Chart | alt.LayerChart | alt.FacetChart
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_ROW = 22  # pixels of a row of groups or layers
# The last characters of a layer's name tell it from others.
_SHORT = "length(datum.label) > 22 ? '…' + slice(datum.label, length(datum.label) - 22) : datum.label"


def colour(name: str) -> str:
    """A colour of the page, by its role."""
    return f"var(--{name})"


def spec(chart: AnyChart, description: str, *, rows: int = 0, height: int = 0) -> Chart:
    """The specification of a chart as wide as its place in the page.

    It is as high as its `rows` of groups or layers where it has any, else of a `height` in pixels.
    """
    around = {
        "description": description,
        "width": "container",
        "height": _ROW * rows or height,
        "autosize": {"type": "fit-x" if rows else "fit", "contains": "padding"},
        "padding": {"left": 2, "right": 6, "top": 4, "bottom": 4},
        "config": _config(),
    }
    # Rows stay with their chart, where the page's script finds them. It is for tests to validate: a third of the time.
    with alt.data_transformers.enable(consolidate_datasets=False), alt.theme.enable("none"):
        return {**chart.to_dict(validate=False), **around}


def stack_layers(rows: Sequence[Mapping[str, Any]], *layers: alt.Chart, name: str = "") -> AnyChart:
    """Layers over the same rows, which the page's script knows by their `name` where they have one."""
    return alt.layer(*layers, data=inline(rows, name))


def inline(rows: Sequence[Mapping[str, Any]], name: str = "") -> alt.InlineData:
    """Rows as the data of a chart."""
    given = list(rows)
    return alt.InlineData(values=given, name=name) if name else alt.InlineData(values=given)


def tip(field: str, title: str | None = None, form: str = "") -> alt.Tooltip:
    """A line of a tooltip: the field, under its own name or a title; numbers in a D3 format."""
    said: dict[str, Any] = {} if title is None else {"title": title}
    if form:
        return alt.Tooltip(f"{field}:Q", format=form, **said)
    return alt.Tooltip(f"{field}:N", **said)


def macs_axis(values: Iterable[float], *, zero: bool = False) -> dict[str, Any]:
    """An axis of multiply-adds around all `values`: 4M, 300M, 4G."""
    axis = alt.Axis(format="~s", tickCount=6, labelExpr="datum.value ? datum.label : '0'")
    return {"title": "multiply-adds (MACs)", "axis": axis, "scale": around(values, zero=zero)}


def percent_axis(title: str, values: Iterable[float]) -> dict[str, Any]:
    """An axis of percents around all `values`, within 0 and 100."""
    return {"title": title, "scale": around(values, most=100.0)}


def metric_axis(metric: Metric, values: Iterable[float]) -> dict[str, Any]:
    """An axis of a task's metric around all `values`; of percents, within 0 and 100."""
    if metric.unit == "%":
        return percent_axis(metric.column, values)
    return {"title": metric.column, "scale": alt.Scale(zero=False, nice=True)}


def ratio_axis(*spaces: WidthSpace, grid: bool = True) -> dict[str, Any]:
    """An axis of kept ratios, from nothing to all, or to the widest of the `spaces` where one is widened."""
    widest = max((w / own for s in spaces for w, own in zip(s.full, s.original_widths, strict=True)), default=1.0)
    scale = alt.Scale(domain=[0, widest], nice=False)
    axis = alt.Axis(format="%") if grid else alt.Axis(format="%", grid=False)
    return {"title": "kept ratio of the width", "scale": scale, "axis": axis}


def names_axis(field: str, names: Sequence[str], *, grid: bool = False, joined: bool = False) -> alt.Y:
    """An axis with a row for each of the `names` of groups or layers; of `joined` rows there is no room between."""
    lines: dict[str, Any] = {"grid": True} if grid else {}
    axis = alt.Axis(labelExpr=_SHORT, ticks=False, domain=False, **lines)
    room: dict[str, Any] = {"scale": alt.Scale(paddingInner=0, paddingOuter=0)} if joined else {}
    return alt.Y(f"{field}:N", sort=list(names), title=None, axis=axis, **room)


def score_axis(metric: str, values: Iterable[float]) -> dict[str, Any]:
    """An axis of scores around all `values`: accuracies in percent, losses, which are below zero, or the user's own."""
    if metric == "accuracy":
        return percent_axis(axis_title(metric), values)
    most = math.inf if metric == "own" else 0.0
    return {"title": axis_title(metric), "scale": around(values, least=-math.inf, most=most)}


def around(values: Iterable[float], *, zero: bool = False, least: float = 0.0, most: float = math.inf) -> alt.Scale:
    """A scale that leaves some room on both sides of all `values`, but none below `least` or above `most`."""
    known = [0.0] if zero else []
    known += values
    low = min(known)
    high = max(known)
    room = 0.04 * (high - low) or 0.04 * max(abs(high), 1.0)
    return alt.Scale(domain=[max(least, low - room), min(most, high + room)], nice=False, zero=False)


def colours_of(names: Sequence[str], colours: Sequence[str]) -> alt.Scale:
    """A scale that gives each name its colour."""
    return alt.Scale(domain=list(names), range=[colour(c) for c in colours])


def shapes_of(names: Sequence[str], shapes: Sequence[str]) -> alt.Scale:
    """A scale that gives each name its shape."""
    return alt.Scale(domain=list(names), range=list(shapes))


def in_light(chart: Chart) -> Chart:
    """The chart with the light colours written in, for a picture outside the page."""
    text = json.dumps(chart)
    for name, value in LIGHT.items():
        text = text.replace(colour(name), value)
    return dict(json.loads(text))


def variables(colours: Mapping[str, str]) -> str:
    """The colours as CSS variables."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


@functools.cache  # half of what a small chart takes
def _config() -> dict[str, Any]:
    """Colours, fonts and lines, the same in all charts."""
    text: dict[str, Any] = {
        "labelColor": colour("muted"),
        "titleColor": colour("ink"),
        "labelFontSize": 12,
        "titleFontSize": 12,
    }
    config = alt.Config(
        font=FONT,
        background="transparent",  # the page shows through
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            **text,
            titleFontWeight="normal",
            gridColor=colour("grid"),
            domainColor=colour("line"),
            tickColor=colour("line"),
            labelLimit=260,
        ),
        legend=alt.LegendConfig(
            **text, titleFontWeight="normal", orient="top", symbolStrokeWidth=2, title=None, labelLimit=320
        ),
        text=alt.MarkConfig(fill=colour("ink"), fontSize=12),
        rule=alt.MarkConfig(stroke=colour("line")),
    )
    return config.to_dict()
