"""Style of charts: colours distinguishable with any colour vision, and Vega-Lite's settings.

Charts are SVG with CSS variables as colours. The page sets them by `prefers-color-scheme` and medium, so one chart
serves light, dark and print. A picture outside the page uses the light colours.
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

# Okabe and Ito's palette with a contrast of at least 3:1 to the paper; shapes and labels repeat the information
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
SERIES = ("blue", "orange", "green", "purple", "yellow", "sky", "ink")  # for runs or stages
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "stroke")
ORIGINAL = "muted"
UNIFORM = "orange"
SEARCHED = "blue"
PICKED = "purple"
AnyChart = alt.Chart | alt.LayerChart | alt.FacetChart
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_ROW = 22  # height of a row of groups or layers, in pixels
# The last characters of a layer's name identify it.
_SHORT = "length(datum.label) > 22 ? '…' + slice(datum.label, length(datum.label) - 22) : datum.label"


def colour(name: str) -> str:
    """Return a colour of the page by role."""
    return f"var(--{name})"


def spec(chart: AnyChart, description: str, *, rows: int = 0, height: int = 0) -> Chart:
    """Return the specification of a chart as wide as its place in the page.

    Its height follows from `rows` of groups or layers if given, otherwise it is `height` pixels.
    """
    around = {
        "description": description,
        "width": "container",
        "height": _ROW * rows or height,
        "autosize": {"type": "fit-x" if rows else "fit", "contains": "padding"},
        "padding": {"left": 2, "right": 6, "top": 4, "bottom": 4},
        "config": _config(),
    }
    # The rows stay in the chart, where the page's script finds them. Tests validate charts, since it takes a third of
    # the time.
    with alt.data_transformers.enable(consolidate_datasets=False), alt.theme.enable("none"):
        return {**chart.to_dict(validate=False), **around}


def stack_layers(rows: Sequence[Mapping[str, Any]], *layers: alt.Chart, name: str = "") -> AnyChart:
    """Stack layers over the same rows; `name` identifies the rows for the page's script."""
    return alt.layer(*layers, data=inline(rows, name))


def inline(rows: Sequence[Mapping[str, Any]], name: str = "") -> alt.InlineData:
    """Return rows as the data of a chart."""
    given = list(rows)
    return alt.InlineData(values=given, name=name) if name else alt.InlineData(values=given)


def tip(field: str, title: str | None = None, form: str = "") -> alt.Tooltip:
    """Return a tooltip line: a field with an optional title and D3 number format."""
    options: dict[str, Any] = {} if title is None else {"title": title}
    if form:
        return alt.Tooltip(f"{field}:Q", format=form, **options)
    return alt.Tooltip(f"{field}:N", **options)


def macs_axis(values: Iterable[float], *, zero: bool = False) -> dict[str, Any]:
    """Return an axis of multiply-adds around all `values`: 4M, 300M, 4G."""
    axis = alt.Axis(format="~s", tickCount=6, labelExpr="datum.value ? datum.label : '0'")
    return {"title": "multiply-adds (MACs)", "axis": axis, "scale": scale_around(values, zero=zero)}


def percent_axis(title: str, values: Iterable[float]) -> dict[str, Any]:
    """Return an axis of percentages around all `values`, within 0 and 100."""
    return {"title": title, "scale": scale_around(values, most=100.0)}


def metric_axis(metric: Metric, values: Iterable[float]) -> dict[str, Any]:
    """Return an axis of a task's metric around all `values`; percentages are within 0 and 100."""
    if metric.unit == "%":
        return percent_axis(metric.column, values)
    return {"title": metric.column, "scale": alt.Scale(zero=False, nice=True)}


def ratio_axis(*spaces: WidthSpace, grid: bool = True) -> dict[str, Any]:
    """Return an axis of kept ratios from 0 to 1, or to the widest of the `spaces` if one is widened."""
    widest = max((w / own for s in spaces for w, own in zip(s.full, s.original_widths, strict=True)), default=1.0)
    scale = alt.Scale(domain=[0, widest], nice=False)
    axis = alt.Axis(format="%") if grid else alt.Axis(format="%", grid=False)
    return {"title": "kept ratio of the width", "scale": scale, "axis": axis}


def names_axis(field: str, names: Sequence[str], *, grid: bool = False, joined: bool = False) -> alt.Y:
    """Return an axis with a row for each of the `names`; `joined` rows have no gap."""
    lines: dict[str, Any] = {"grid": True} if grid else {}
    axis = alt.Axis(labelExpr=_SHORT, ticks=False, domain=False, **lines)
    room: dict[str, Any] = {"scale": alt.Scale(paddingInner=0, paddingOuter=0)} if joined else {}
    return alt.Y(f"{field}:N", sort=list(names), title=None, axis=axis, **room)


def score_axis(metric: str, values: Iterable[float]) -> dict[str, Any]:
    """Return an axis of scores around all `values`: accuracies in percent, negative losses, or custom scores."""
    if metric == "accuracy":
        return percent_axis(axis_title(metric), values)
    most = math.inf if metric == "own" else 0.0
    return {"title": axis_title(metric), "scale": scale_around(values, least=-math.inf, most=most)}


def scale_around(
    values: Iterable[float], *, zero: bool = False, least: float = 0.0, most: float = math.inf
) -> alt.Scale:
    """Return a scale with a margin on both sides of all `values`, limited by `least` and `most`."""
    known = [0.0] if zero else []
    known += values
    low = min(known)
    high = max(known)
    room = 0.04 * (high - low) or 0.04 * max(abs(high), 1.0)
    return alt.Scale(domain=[max(least, low - room), min(most, high + room)], nice=False, zero=False)


def colours_of(names: Sequence[str], colours: Sequence[str]) -> alt.Scale:
    """Return a scale that maps names to colours."""
    return alt.Scale(domain=list(names), range=[colour(c) for c in colours])


def shapes_of(names: Sequence[str], shapes: Sequence[str]) -> alt.Scale:
    """Return a scale that maps names to shapes."""
    return alt.Scale(domain=list(names), range=list(shapes))


def in_light(chart: Chart) -> Chart:
    """Return the chart with the light colours filled in, for a picture outside the page."""
    text = json.dumps(chart)
    for name, value in LIGHT.items():
        text = text.replace(colour(name), value)
    return dict(json.loads(text))


def variables(colours: Mapping[str, str]) -> str:
    """Return the colours as CSS variables."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


@functools.cache  # takes half the time of a small chart
def _config() -> dict[str, Any]:
    """Return colours, fonts and lines shared by all charts."""
    text: dict[str, Any] = {
        "labelColor": colour("muted"),
        "titleColor": colour("ink"),
        "labelFontSize": 12,
        "titleFontSize": 12,
    }
    config = alt.Config(
        font=FONT,
        background="transparent",  # the page's background is visible
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
