"""Formatting of scores: an accuracy in percent, a negative loss, or a custom score; higher is better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bcnet.costs import LATENCY, Latency, measure_called
from bcnet.display import duration, score_text, trainings_text
from bcnet.measurement import Measurement
from bcnet.run.result import RunResult, SearchResults
from bcnet.tasks.shown import name_of


def fresh_score_text(found: SearchResults) -> str:
    """Format the score on fresh images with its interval."""
    if not found.fresh_images:
        return "not scored again on fresh images"
    low, high = (score_text(end, found.metric, unit=False) for end in found.fresh_interval)
    text = f"{score_text(found.fresh_score, found.metric)} (95 % interval {low} to {high})"
    return f"{text} after {found.finalist_epochs} epochs of training" if found.finalist_epochs else text


SEARCH_STAGES = (
    *("calibration", "supernet", "prior", "evolution", "reliability", "trials"),
    *("rescore", "finalists", "pruning"),
)
"""Names of the stages whose times make up the cost of the search."""

_COMPARABLE = 5.0  # seconds of the original's training from which the search is compared to it


def search_seconds(seconds: Mapping[str, float]) -> tuple[float, float | None]:
    """Return the cost of the search, in seconds and in trainings of the original, from the times by stage."""
    taken = sum(value for name, value in seconds.items() if name in SEARCH_STAGES)
    original = seconds.get("original", 0.0)
    return taken, taken / original if original > 0 else None


def search_cost_text(seconds: Mapping[str, float]) -> str:
    """Format the cost of the search; "" if nothing was searched.

    Example: "3 min 20 s, 2.4 trainings of the original".
    """
    taken, trainings = search_seconds(seconds)
    if not taken:
        return ""
    # A ratio to a training of seconds would measure how long networks take to be made and scored.
    if trainings is None or seconds["original"] < _COMPARABLE:
        return duration(taken)
    number = trainings_text(trainings)
    return f"{duration(taken)}, {number} training{'' if number == '1' else 's'} of the original"


def heuristics_text(found: SearchResults) -> str:
    """Return a sentence on the widths that need no search; "" if none were scored.

    Example: "Widths that need no search, by the same scores: balanced 92.10 % at 0.499x, 91.80 % on fresh images."
    """
    told = []
    for row in found.heuristics:
        text = f"{row.name} {score_text(row.score, found.metric)} at {row.macs_ratio:.3f}x"
        fresh = row.fresh_score if found.fresh_images else None
        told.append(text if fresh is None else f"{text}, {score_text(fresh, found.metric)} on fresh images")
    return f"Widths that need no search, by the same scores: {'; '.join(told)}. " if told else ""


def measured_text(result: RunResult) -> str:
    """Return a line with the networks' measured latencies; "" without a latency limit."""
    if result.measured_latency is not None:
        told = ", ".join(f"{name} {LATENCY.text(value)}" for name, value in result.measured_latency.items())
        return f"Latency as measured: {told}; the table has upper bounds, as predicted."
    if any(isinstance(measure_called(name), Latency) for name in result.budget.others):
        return "Latencies are those of a model of another machine: time the networks there before you rely on them."
    return ""


def largest_class_text(counts: Mapping[int, int], names: Sequence[str]) -> str:
    """Return a sentence on the share of the largest class among the test images."""
    number = max(counts, key=lambda number: (counts[number], -number))
    share = 100 * counts[number] / sum(counts.values())
    return (
        f"The largest class, {name_of(number, names)}, has {share:.3g} % of the test images: the accuracy if "
        "every answer were this class."
    )


def gain_text(result: RunResult) -> str:
    """Compare the searched network with Uniform on the test images, and say what to do.

    A difference is clear if it exceeds what chance explains in 95 % of cases for this number of images (`chance`).

    Example: "Searched 87.85 %, Uniform 83.20 % test top-1: 4.65 points better, a clear difference on 2,872 inputs."
    """
    metric = result.headline
    one, other = (result.value(name) for name in ("searched", "uniform"))
    intervals = (result.networks[name].measurement.interval(metric) for name in ("searched", "uniform"))
    # Both networks see the same images, but their errors are treated as independent, which overstates chance.
    left_to_chance = chance(*((value, *ends) for value, ends in zip((one, other), intervals, strict=True)))
    unit = "points" if metric.unit == "%" else metric.unit
    by = f"{abs(one - other):.{metric.digits}f} {unit}".rstrip()
    is_better = (one > other) == metric.higher
    is_clear = abs(one - other) > left_to_chance
    found = "the same"
    if one != other:
        direction = "better" if is_better else "worse"
        found = f"{by} {direction}, {'a clear' if is_clear else 'no clear'} difference"
    advice = " Take --method uniform --reuse RUN." if is_clear and not is_better else ""
    figures = f"Searched {metric.text(one)}, Uniform {metric.text(other)} {metric.name}"
    return f"{figures}: {found} on {result.networks['searched'].test_images:,} inputs.{advice}"


def chance(one: tuple[float, float, float], two: tuple[float, float, float]) -> float:
    """Return the difference of two figures, given as (value, low, high), that chance can explain.

    Newcombe's interval from both intervals ("Interval estimation for the difference", 1998, method 10). It assumes
    independent images; both networks see the same ones, so it is conservative.
    """
    (low_value, _, high), (high_value, low, _) = sorted((one, two))
    return math.hypot(high_value - low, high - low_value)


_TRUST = {"much": "fair", "little": "low", "nothing": "none"}


def trust_text(verdict: str, *, of_networks: bool) -> str:
    """Describe the trust in the scores in one word, with what to do.

    Example: "Trust in the search: low. Train candidates for longer: --effort large."
    """
    longer = (
        "candidates for longer: --effort large" if of_networks else "the supernet for longer: --method bcnet:epochs=N"
    )
    advice = {
        "much": "To check it: --method balanced --reuse RUN.",
        "little": f"Train {longer}.",
        "nothing": f"Take --method balanced, or train {longer}.",
    }[verdict]
    return f"Trust in the search: {_TRUST[verdict]}. {advice}"


def measurement_of(state: Mapping[str, Any]) -> Measurement:
    """Return the test result in a network's file.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, OverflowError: the file has another form.
    """
    figures, errors = ({key: float(v) for key, v in state[part].items()} for part in ("figures", "errors"))
    by_class = {int(number): (int(count), float(mean)) for number, (count, mean) in state["by_class"].items()}
    return Measurement(figures, errors, int(state["count"]), by_class)
