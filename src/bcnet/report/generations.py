"""Progress of the search by generation or batch, and the value of width as estimated by the score model."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import altair as alt
import numpy as np

from bcnet.display import axis_title, score_text
from bcnet.methods import BCNet, SupernetMethod
from bcnet.report.evidence import Evidence
from bcnet.report.html import Chart, Section, figure, not_yet, paragraph
from bcnet.report.look import SEARCHED, colour, inline, names_axis, score_axis, spec, stack_layers, tip
from bcnet.run.settings import Settings
from bcnet.searchers import Candidate, ModelBased
from bcnet.searchers.result import hypervolume, pareto_front
from bcnet.searchers.score_model import FEWEST, ScoreModel

_PROGRESS = "Progress of the search"
_WORTH = "What width is worth"


def word_for(settings: Settings) -> str | None:
    """Return the unit of candidates: "generation" or "batch"; None if they come one by one."""
    searcher = getattr(settings.method, "searcher", "")
    if searcher.startswith("evolution"):
        return "generation"
    return "batch" if searcher == "model" else None


def progress_section(evidence: Evidence) -> Section:
    """Return scores by generation or batch, and the hypervolume of an evolution."""
    word = word_for(evidence.settings) or "generation"
    rows = generation_rows(evidence)
    if not rows:
        return Section("progress", _PROGRESS, not_yet("The search has not begun."))
    settings = evidence.settings
    last = rows[-1]
    score = partial(score_text, metric=evidence.metric)
    evolved = word == "generation"
    if evolved:
        method = settings.method
        assert isinstance(method, BCNet), "only BCNet has generations"
        come = f"{len(rows)} of {method.generations} generations of {method.population} candidates"
        first = "drawn from the prior"
        later = "Later generations also look for cheaper networks, so that their medians may fall."
    else:
        come = f"{len(evidence.evaluations)} candidates in batches of {_size(settings)}"
        first = "with the balanced and the Uniform widths in it"
        later = "Every batch also has random widths, to improve the model; a best that stays needs no more."
    text = (
        f"{come}. The first, {first}: best {score(rows[0]['best'])}, median {score(rows[0]['median'])}; "
        f"the last median is {score(last['median'])}, the best of all {score(last['best'])}."
    )
    body = paragraph(text) + figure(
        "scores",
        f"Best, median and spread of the scores by {word}",
        f"Line with dots: median of the {word}; band: its middle half; light band: all of it; "
        f"stepped line: best so far. {later}",
    )
    scores = scores_chart(rows, evidence.metric, word)
    if not evolved:
        return Section("progress", _PROGRESS, body, {"scores": scores}, "Progress")
    body += figure(
        "hypervolume",
        "Hypervolume of the front by generation",
        "Hypervolume: the area under the front, above the lowest score of the first generation, over MACs from none to "
        "all of the budget. It never falls; where it stays flat the search finds nothing new.",
    )
    return Section(
        "progress",
        _PROGRESS,
        body,
        {"scores": scores, "hypervolume": hypervolume_chart(rows)},
        "Progress",
    )


def _size(settings: Settings) -> int:
    """Return the size of a generation or batch."""
    return settings.method.population if isinstance(settings.method, SupernetMethod) else ModelBased.batch


def generation_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return scores and hypervolume of the feasible candidates of each generation or batch."""
    budget = evidence.budget
    size = _size(evidence.settings)
    if budget is None or not evidence.evaluations or evidence.space is None:
        return []
    limit = budget.macs if budget.macs is not None else evidence.space.cost(evidence.space.full).macs
    assert isinstance(limit, int)
    lowest = min(c.score for c in evidence.evaluations[:size])
    front: tuple[Candidate, ...] = ()
    rows = []
    best = float("-inf")
    for start in range(0, len(evidence.evaluations), size):
        generation = evidence.evaluations[start : start + size]
        front = pareto_front([*front, *(c for c in generation if budget.admits(c.cost))])
        low, lower, median, upper, high = np.percentile([c.score for c in generation], (0, 25, 50, 75, 100)).tolist()
        best = max([best, *(c.score for c in generation)])
        rows.append(
            {
                "generation": start // size + 1,
                "best": best,
                "low": low,
                "lower": lower,
                "median": median,
                "upper": upper,
                "high": high,
                "hypervolume": hypervolume(front, lowest, limit),
            }
        )
    return rows


def _generation(word: str = "generation") -> alt.X:
    scale = alt.Scale(nice=False, zero=False)
    return alt.X("generation:Q", title=word, axis=alt.Axis(tickMinStep=1, format="d"), scale=scale)


def scores_chart(rows: list[dict[str, Any]], metric: str, word: str) -> Chart:
    """Return the chart of best so far, median and spread."""
    score = score_axis(metric, [row[end] for row in rows for end in ("low", "high")])
    digits = {"accuracy": ".2f", "loss": ".4f"}.get(metric, ".4g")
    tooltip = [
        tip("generation", word),
        tip("best", "best so far", digits),
        tip("high", "best of it", digits),
        tip("upper", "upper quartile", digits),
        tip("median", "median", digits),
        tip("lower", "lower quartile", digits),
        tip("low", "worst of it", digits),
    ]
    x = _generation(word)
    whole = alt.Chart().mark_area(color=colour(SEARCHED), opacity=0.12)
    whole = whole.encode(x=x, y=alt.Y("low:Q", **score), y2=alt.Y2("high"))
    middle = alt.Chart().mark_area(color=colour(SEARCHED), opacity=0.25)
    middle = middle.encode(x=x, y=alt.Y("lower:Q", **score), y2=alt.Y2("upper"))
    best = alt.Chart().mark_line(interpolate="step-after", color=colour("ink"), strokeWidth=1.5)
    best = best.encode(x=x, y=alt.Y("best:Q", **score))
    dots = alt.OverlayMarkDef(size=30, fill=colour(SEARCHED))
    median = alt.Chart().mark_line(color=colour(SEARCHED), strokeWidth=2, point=dots)
    median = median.encode(x=x, y=alt.Y("median:Q", **score))
    # Invisible rules are targets for the pointer.
    targets = alt.Chart().mark_rule(opacity=0, strokeWidth=8).encode(x=x, tooltip=tooltip)
    return spec(stack_layers(rows, whole, middle, best, median, targets), f"Scores by {word}", height=240)


def hypervolume_chart(rows: list[dict[str, Any]]) -> Chart:
    """Return the chart of the front's hypervolume."""
    dots = alt.OverlayMarkDef(size=40, fill=colour("green"))
    line = alt.Chart(inline(rows)).mark_line(color=colour("green"), strokeWidth=2, point=dots)
    line = line.encode(
        x=_generation(),
        y=alt.Y("hypervolume:Q", title="hypervolume", scale=alt.Scale(zero=False)),
        tooltip=[tip("generation"), tip("hypervolume", form=".3f")],
    )
    return spec(line, "Hypervolume by generation", height=130)


def worth_section(evidence: Evidence) -> Section:
    """Return the slopes of the score model by group."""
    rows = worth_rows(evidence)
    if not rows:
        return Section("worth", _WORTH, not_yet("The search has scored too few candidates."))
    text = (
        "The gain of the score from doubling the width of one group, by the model that proposed the "
        "candidates. It is valid near the best widths, since further width gives less. A search gives width "
        "where it gains most for its cost."
    )
    caption = "Bars are the model's expectation, lines its posterior standard deviation to either side."
    label = f"Gain of the score where each of {len(rows)} groups is twice as wide"
    body = paragraph(text) + figure("worth", label, caption, tall=len(rows) > 40)
    return Section("worth", _WORTH, body, {"worth": worth_chart(rows, evidence.metric)})


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


def worth_chart(rows: list[dict[str, Any]], metric: str) -> Chart:
    """Return a bar for each group."""
    group = names_axis("group", [row["group"] for row in rows])
    gain = alt.X("gain:Q", title=f"gain by twice the width: {axis_title(metric)}")
    tooltip = [tip("group"), tip("gain", "gain", ".4g"), tip("low", "less", ".4g"), tip("high", "more", ".4g")]
    bar = alt.Chart().mark_bar(color=colour(SEARCHED), opacity=0.5).encode(x=gain, y=group, tooltip=tooltip)
    line = alt.Chart().mark_rule(color=colour("ink")).encode(x=alt.X("low:Q"), x2=alt.X2("high"), y=group)
    return spec(stack_layers(rows, bar, line), "Gain of the score by width", rows=len(rows))
