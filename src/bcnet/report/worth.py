"""Value of width: the gain of the score from widening each group, as estimated by the score model."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np

from bcnet.display import axis_title
from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, Section, figure, not_yet, paragraph
from bcnet.report.look import SEARCHED, colour, names_axis, spec, stack_layers, tip
from bcnet.searchers.score_model import FEWEST, ScoreModel

_TITLE = "What width is worth"


def section(evidence: Evidence) -> Section:
    """Return the slopes of the score model by group."""
    rows = worth_rows(evidence)
    if not rows:
        return Section("worth", _TITLE, not_yet("The search has scored too few candidates."))
    text = (
        "The gain of the score from doubling the width of one group, by the model that proposed the "
        "candidates. It is valid near the best widths, since further width gives less. A search gives width "
        "where it gains most for its cost."
    )
    caption = "Bars are the model's expectation, lines its posterior standard deviation to either side."
    label = f"Gain of the score where each of {len(rows)} groups is twice as wide"
    body = paragraph(text) + figure("worth", label, caption, tall=len(rows) > 40)
    return Section("worth", _TITLE, body, {"worth": chart(rows, evidence.metric)})


def worth_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the gain from doubling each group's width, with its posterior standard deviation."""
    space = evidence.space
    budget = evidence.budget
    if space is None or budget is None:
        return []
    inside = [c for c in evidence.evaluations if budget.admits(c.cost)]
    if len(inside) < FEWEST:
        return []
    scores = [c.score for c in inside]
    model = ScoreModel.fit(space, [c.widths for c in inside], scores, trust=1.0)
    doubling = math.log(2) * float(np.std(scores))
    gains = doubling * model.own
    errors = doubling * np.sqrt(np.diag(model.covariance))
    return [
        {"group": group.name, "gain": float(gain), "low": float(gain - error), "high": float(gain + error)}
        for group, gain, error in zip(space.groups, gains, errors, strict=True)
    ]


def chart(rows: list[dict[str, Any]], metric: str) -> Chart:
    """Return a bar for each group."""
    group = names_axis("group", [row["group"] for row in rows])
    gain = alt.X("gain:Q", title=f"gain by twice the width: {axis_title(metric)}")
    tooltip = [tip("group"), tip("gain", "gain", ".4g"), tip("low", "less", ".4g"), tip("high", "more", ".4g")]
    bar = alt.Chart().mark_bar(color=colour(SEARCHED), opacity=0.5).encode(x=gain, y=group, tooltip=tooltip)
    line = alt.Chart().mark_rule(color=colour("ink")).encode(x=alt.X("low:Q"), x2=alt.X2("high"), y=group)
    return spec(stack_layers(rows, bar, line), "Gain of the score by width", rows=len(rows))
