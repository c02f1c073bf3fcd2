"""Charts whose rows come as a run goes on: the report's marks over data that the page exchanges."""

from __future__ import annotations

import altair as alt

from bcnet.report import candidates, losses
from bcnet.report.html import Chart
from bcnet.report.look import inline, spec
from bcnet.run.finished import NETWORKS
from bcnet.run.score import axis_title

_DOTS = "candidates"
_FRONT = "front"


def live_charts(metric: str, reference_macs: int, limit_macs: float | None) -> dict[str, Chart]:
    """Charts by name, each with data of its own name: "supernet" and "networks" of losses, "candidates" with "front".

    Args:
        metric: What scores are: "accuracy", "loss" or "own".
        reference_macs: Multiply-adds of the original network.
        limit_macs: Most that the budget allows, where it limits them.
    """
    return {
        "supernet": losses.chart({"supernet": []}, name="supernet"),
        "networks": losses.chart({stage: [] for stage in NETWORKS.values()}, name="networks"),
        "candidates": _candidates(metric, reference_macs, limit_macs),
    }


def _candidates(metric: str, reference_macs: int, limit_macs: float | None) -> Chart:
    axis = alt.Axis(format="~s", tickCount=6)
    macs = alt.X("macs:Q", title="multiply-adds (MACs)", axis=axis, scale=alt.Scale(zero=False))
    score = alt.Y("score:Q", title=axis_title(metric), scale=alt.Scale(zero=False))
    every = inline([], _DOTS)
    front = inline([], _FRONT)
    layers = [
        candidates.dots(reference_macs).properties(data=every).encode(x=macs, y=score),
        candidates.front_line().properties(data=front).encode(x=macs, y=score),
        candidates.dots(reference_macs).properties(data=front, name="front_dots").encode(x=macs, y=score),
    ]
    if limit_macs is not None:
        rule = alt.Chart(inline([{"macs": limit_macs}])).mark_rule(strokeDash=[4, 4])
        layers.insert(0, rule.encode(x=macs))
    return spec(alt.layer(*layers), "Score against multiply-adds, as candidates are scored", height=260)
