"""The final networks: test top-1 against multiply-adds, beside the budget."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bcnet.report.evidence import NETWORKS, Evidence, Network
from bcnet.report.html import Chart
from bcnet.report.look import ORIGINAL, SEARCHED, UNIFORM, colour, macs_axis, percent_axis, scale_of, spec
from bcnet.searchers import accuracy_interval

_COLOURS, _SHAPES = (ORIGINAL, UNIFORM, SEARCHED), ("square", "triangle-up", "circle")


def interval(network: Network) -> tuple[float, float]:
    """95 % interval of the test top-1 in percent: what the number of test images leaves to chance."""
    right = round(network.top1 / 100 * network.images)
    return accuracy_interval(np.repeat([100.0, 0.0], [right, network.images - right]))


def chance(one: Network, two: Network) -> float:
    """Points of difference that the test images leave to chance in 95 % of cases.

    Newcombe's interval from those of both networks ("Interval estimation for the difference", 1998, method 10). Both
    see the same images, so that it is rather too wide.
    """
    better, worse = sorted((one, two), key=lambda network: -network.top1)
    return math.hypot(better.top1 - interval(better)[0], interval(worse)[1] - worse.top1)


def networks_chart(evidence: Evidence) -> Chart:
    """Test top-1 of the trained networks with 95 % intervals."""
    rows = []
    for n in evidence.networks.values():
        low, high = interval(n)
        facts = {"network": n.label, "macs": n.cost.macs, "params": n.cost.params, "top1": n.top1}
        rows.append(facts | {"low": low, "high": high})
    labels = [NETWORKS[key] for key in NETWORKS if key in evidence.networks]
    limit = [evidence.budget.macs] if evidence.budget is not None and evidence.budget.macs is not None else []
    x = {"field": "macs", **macs_axis([*(row["macs"] for row in rows), *limit], zero=True)}
    colours = {"field": "network", "scale": scale_of(labels, _COLOURS[: len(labels)])}
    y = percent_axis("test top-1 (%)", [row[end] for row in rows for end in ("low", "high")])
    legend = {"symbolSize": 110}
    tooltip = [
        {"field": "network"},
        {"field": "macs", "format": ",", "title": "MACs"},
        {"field": "params", "format": ",", "title": "parameters"},
        {"field": "top1", "format": ".2f", "title": "test top-1 (%)"},
    ]
    points = {
        "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
        "encoding": {
            "x": x,
            "y": {"field": "top1", **y},
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
    return spec("Test top-1 against multiply-adds", height=190, data={"values": rows}, layer=layers)


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
