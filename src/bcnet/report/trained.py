"""The final networks: what they did on the test images against multiply-adds, beside the budget."""

from __future__ import annotations

import math
from typing import Any

from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, capitalised
from bcnet.report.look import ORIGINAL, SEARCHED, UNIFORM, colour, macs_axis, metric_axis, scale_of, spec
from bcnet.run.finished import NETWORKS
from bcnet.run.run import Network

_COLOURS, _SHAPES = (ORIGINAL, UNIFORM, SEARCHED), ("square", "triangle-up", "circle")


def chance(one: Network, two: Network) -> float:
    """Points of difference that the test images leave to chance in 95 % of cases.

    Newcombe's interval from those of both networks ("Interval estimation for the difference", 1998, method 10). Both
    see the same images, so that it is rather too wide.
    """
    better, worse = sorted((one, two), key=lambda network: -network.value)
    return math.hypot(better.value - better.low, worse.high - worse.value)


def networks_chart(evidence: Evidence) -> Chart:
    """The test figure of the trained networks with 95 % intervals."""
    rows = []
    for n in evidence.networks.values():
        facts = {"network": n.label, "macs": n.cost.macs, "params": n.cost.params, "value": n.value}
        rows.append(facts | {"low": n.low, "high": n.high})
    metric = evidence.metric_of_test
    labels = [NETWORKS[key] for key in NETWORKS if key in evidence.networks]
    limit = [evidence.budget.macs] if evidence.budget is not None and evidence.budget.macs is not None else []
    x = {"field": "macs", **macs_axis([*(row["macs"] for row in rows), *limit], zero=True)}
    colours = {"field": "network", "scale": scale_of(labels, _COLOURS[: len(labels)])}
    y = metric_axis(metric, [row[end] for row in rows for end in ("low", "high")])
    legend = {"symbolSize": 110}
    tooltip = [
        {"field": "network"},
        {"field": "macs", "format": ",", "title": "MACs"},
        {"field": "params", "format": ",", "title": "parameters"},
        {"field": "value", "format": f".{metric.digits}f", "title": metric.heading},
    ]
    points = {
        "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
        "encoding": {
            "x": x,
            "y": {"field": "value", **y},
            "color": {**colours, "legend": legend},
            "shape": {"field": "network", "scale": scale_of(labels, (), _SHAPES[: len(labels)]), "legend": legend},
            "tooltip": tooltip,
        },
    }
    intervals = {
        "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.7},
        "encoding": {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}, "color": colours},
    }
    layers = [*budget_layers(evidence, x), intervals, points]
    return spec(f"{capitalised(metric.name)} against multiply-adds", height=190, data={"values": rows}, layer=layers)


def budget_layers(evidence: Evidence, x: dict[str, Any]) -> list[dict[str, Any]]:
    """The budget as a line across a chart whose axis of MACs is `x`; nothing where only parameters are limited."""
    limit = None if evidence.budget is None else evidence.budget.macs
    if limit is None:
        return []
    data = {"values": [{"macs": limit, "text": "budget"}]}
    rule = {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5}
    text = {"type": "text", "baseline": "bottom", "dy": -3, "y": 0, "color": colour("muted")}
    return [
        {"data": data, "mark": rule, "encoding": {"x": x}},
        {"data": data, "mark": text, "encoding": {"x": x, "text": {"field": "text"}}},
    ]
