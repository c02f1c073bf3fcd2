"""How charts look: colours that people of every colour vision tell apart, and Vega-Lite's settings.

Charts are drawn as SVG, whose colours are CSS variables: the page decides by `prefers-color-scheme` and by the medium
what they are, so that one chart serves light, dark and print. A picture outside the page takes the light ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bcnet.report.html import Chart
from bcnet.run.score import axis_title
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
ORIGINAL, UNIFORM, SEARCHED, PICKED = "muted", "orange", "blue", "purple"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_ROW = 22  # pixels of a row of groups or layers
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name; nothing is fetched
# The last characters of a layer's name tell it from others.
_SHORT = "length(datum.label) > 22 ? '…' + slice(datum.label, length(datum.label) - 22) : datum.label"


def colour(name: str) -> str:
    """A colour of the page, by its role."""
    return f"var(--{name})"


def spec(description: str, *, rows: int = 0, **parts: Any) -> Chart:
    """A Vega-Lite specification as wide as its place in the page, and as high as its `rows` where it has any."""
    text = {"labelColor": colour("muted"), "titleColor": colour("ink"), "labelFontSize": 12, "titleFontSize": 12}
    config = {
        "font": FONT,
        "background": None,
        "view": {"stroke": None},
        "axis": {
            **text,
            "titleFontWeight": "normal",
            "gridColor": colour("grid"),
            "domainColor": colour("line"),
            "tickColor": colour("line"),
            "labelLimit": 260,
        },
        "legend": {
            **text,
            "titleFontWeight": "normal",
            "orient": "top",
            "symbolStrokeWidth": 2,
            "title": None,
            "labelLimit": 320,
        },
        "text": {"fill": colour("ink"), "fontSize": 12},
        "rule": {"stroke": colour("line")},
    }
    return {
        "$schema": _SCHEMA,
        "description": description,
        "width": "container",
        "autosize": {"type": "fit-x" if rows else "fit", "contains": "padding"},
        "padding": {"left": 2, "right": 6, "top": 4, "bottom": 4},
        "config": config,
        **({"height": _ROW * rows} if rows else {}),
        **parts,
    }


def macs_axis(values: Iterable[float], *, zero: bool = False) -> dict[str, Any]:
    """An axis of multiply-adds around all `values`: 4M, 300M, 4G."""
    axis = {"format": "~s", "tickCount": 6, "labelExpr": "datum.value ? datum.label : '0'"}
    return {"type": "quantitative", "title": "multiply-adds (MACs)", "axis": axis, **around(values, zero=zero)}


def percent_axis(title: str, values: Iterable[float]) -> dict[str, Any]:
    """An axis of percents around all `values`, within 0 and 100."""
    return {"type": "quantitative", "title": title, **around(values, most=100.0)}


def metric_axis(metric: Metric, values: Iterable[float]) -> dict[str, Any]:
    """An axis of a task's metric around all `values`; of percents, within 0 and 100."""
    if metric.unit == "%":
        return percent_axis(metric.heading, values)
    scale = {"zero": False, "nice": True}
    return {"type": "quantitative", "title": metric.heading, "scale": scale}


def ratio_axis(*spaces: WidthSpace) -> dict[str, Any]:
    """An axis of kept ratios, from nothing to all, or to the widest of the `spaces` where one is widened."""
    widest = max((w / own for s in spaces for w, own in zip(s.full, s.original_widths, strict=True)), default=1.0)
    scale = {"domain": [0, widest], "nice": False}
    return {"type": "quantitative", "title": "kept ratio of the width", "scale": scale, "axis": {"format": "%"}}


def names_axis(field: str, names: Sequence[str]) -> dict[str, Any]:
    """An axis with a row for each of the `names` of groups or layers."""
    axis = {"labelExpr": _SHORT, "ticks": False, "domain": False}
    return {"field": field, "type": "nominal", "sort": list(names), "title": None, "axis": axis}


def score_axis(metric: str, values: Iterable[float]) -> dict[str, Any]:
    """An axis of scores around all `values`: accuracies in percent, losses, which are below zero, or the user's own."""
    if metric == "accuracy":
        return percent_axis(axis_title(metric), values)
    return {
        "type": "quantitative",
        "title": axis_title(metric),
        **around(values, least=-math.inf, most=math.inf if metric == "own" else 0.0),
    }


def around(
    values: Iterable[float], *, zero: bool = False, least: float = 0.0, most: float = math.inf
) -> dict[str, Any]:
    """A scale that leaves some room on both sides of all `values`, but none below `least` or above `most`."""
    known = [0.0] if zero else []
    known += values
    low, high = min(known), max(known)
    room = 0.04 * (high - low) or 0.04 * max(abs(high), 1.0)
    return {"scale": {"domain": [max(least, low - room), min(most, high + room)], "nice": False, "zero": False}}


def scale_of(names: Sequence[str], colours: Sequence[str], shapes: Sequence[str] = ()) -> dict[str, Any]:
    """A scale that gives each name its colour, or its shape."""
    return {"domain": list(names), "range": list(shapes) or [colour(c) for c in colours]}


def in_light(chart: Chart) -> Chart:
    """The chart with the light colours written in, for a picture outside the page."""
    text = json.dumps(chart)
    for name, value in LIGHT.items():
        text = text.replace(colour(name), value)
    return dict(json.loads(text))


def variables(colours: Mapping[str, str]) -> str:
    """The colours as CSS variables."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())
