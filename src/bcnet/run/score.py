"""Scores for people: an accuracy in percent, a negative loss, or the user's own; higher is better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bcnet.costs import LATENCY
from bcnet.display import duration, score_text, trainings_text
from bcnet.errors import RunError
from bcnet.tasks import Measurement, Metric
from bcnet.tasks.shown import name_of


def fresh_score_text(found: Mapping[str, Any]) -> str:
    """The score on fresh images with its interval, of the section "search" of `result.json`."""
    if not found["fresh_images"]:
        return "not asked again on fresh images"
    metric: str = found["metric"]
    low, high = (score_text(end, metric, unit=False) for end in found["fresh_interval"])
    text = f"{score_text(found['fresh_score'], metric)} (95 % interval {low} to {high})"
    if found.get("finalist_epochs"):
        return f"{text} after {found['finalist_epochs']} epochs of training"
    return text


SEARCH_STAGES = (
    *("calibration", "supernet", "prior", "evolution", "reliability", "trials"),
    *("rescore", "finalists", "pruning"),
)
"""Names that the times of what finds the widths are kept under."""


def search_seconds(seconds: Mapping[str, float]) -> tuple[float, float | None]:
    """Return what finding the widths took, in seconds and in trainings of the original, from the times by stage."""
    taken = sum(value for name, value in seconds.items() if name in SEARCH_STAGES)
    original = seconds.get("original", 0.0)
    return taken, taken / original if original > 0 else None


def search_cost_text(seconds: Mapping[str, float]) -> str:
    """Return the same for people; nothing where nothing was searched.

    Example: "3 min 20 s, 2.4 trainings of the original".
    """
    taken, trainings = search_seconds(seconds)
    if not taken:
        return ""
    if trainings is None:
        return duration(taken)
    return f"{duration(taken)}, {trainings_text(trainings)} trainings of the original"


def heuristics_text(found: Mapping[str, Any]) -> str:
    """A sentence on the widths that need no search, of `search` in `result.json`; nothing where none were scored.

    Example: "Widths that need no search, by the same scores: balanced 92.10 % at 0.499x, 91.80 % on fresh images."
    """
    metric = found["metric"]
    told = []
    for row in found.get("heuristics", ()):
        text = f"{row['name']} {score_text(row['score'], metric)} at {row['macs_ratio']:.3f}x"
        fresh = row.get("fresh_score") if found["fresh_images"] else None
        told.append(text if fresh is None else f"{text}, {score_text(fresh, metric)} on fresh images")
    return f"Widths that need no search, by the same scores: {'; '.join(told)}. " if told else ""


def measured_text(document: Mapping[str, Any]) -> str:
    """A line on the latencies that were measured of the networks in `result.json`; nothing without such a limit."""
    if "measured_latency" not in document:
        return ""
    times = document["measured_latency"]
    if times is None:
        return "Latencies are those of a model of another machine: time the networks there before you rely on them."
    told = ", ".join(f"{name} {LATENCY.text(value)}" for name, value in times.items())
    return f"Latency as measured: {told}; the table has upper bounds, as predicted."


def headline_of(document: Mapping[str, Any]) -> Metric:
    """The metric that people read first, of `result.json` or `space.json`.

    Raises:
        RunError: the document does not say.
    """
    try:
        return Metric(**document["task"]["headline"])
    except (KeyError, TypeError):
        raise RunError("the run does not say what its task measures: repeat its command in a new directory") from None


def headline_value(network: Mapping[str, Any], metric: Metric) -> float:
    """Its value, of a network of `result.json`."""
    value: float = network["test"][metric.key]
    return value


def largest_class_text(counts: Mapping[int, int], names: Sequence[str]) -> str:
    """Return the share of the largest class, of the numbers of test images by class."""
    number = max(counts, key=lambda number: (counts[number], -number))
    share = 100 * counts[number] / sum(counts.values())
    return (
        f"The largest class, {name_of(number, names)}, has {share:.3g} % of the test images: as many would be right if "
        "every answer were this class."
    )


def gain_text(document: Mapping[str, Any]) -> str:
    """Return what the searched network does on the test images, whether it clearly differs from Uniform, what to do.

    Clear is what exceeds the difference that the images leave to chance in 95 % of cases (`chance`).

    Example: "Searched 87.85 %, Uniform 83.20 % test top-1: 4.65 points better, a clear difference on 2,872 inputs."
    """
    metric = headline_of(document)
    searched, uniform = (
        Measurement(network["test"], network["test_errors"], network["test_images"])
        for network in (document["networks"][name] for name in ("searched", "uniform"))
    )
    one, other = (found.figures[metric.key] for found in (searched, uniform))
    left_to_chance = chance((one, *searched.interval(metric)), (other, *uniform.interval(metric)))
    unit = "points" if metric.unit == "%" else metric.unit
    by = f"{abs(one - other):.{metric.digits}f} {unit}".rstrip()
    is_better = (one > other) == metric.higher
    is_clear = abs(one - other) > left_to_chance
    words = f"{by} {'better' if is_better else 'worse'}, {'a clear' if is_clear else 'no clear'} difference"
    found = "the same" if one == other else words
    advice = " Take --method uniform --reuse RUN." if is_clear and not is_better else ""
    figures = f"Searched {metric.text(one)}, Uniform {metric.text(other)} {metric.name}"
    return f"{figures}: {found} on {searched.count:,} inputs.{advice}"


def chance(one: tuple[float, float, float], two: tuple[float, float, float]) -> float:
    """Return the difference of two figures, each with the ends of its interval, that is left to chance.

    Newcombe's interval from those of both ("Interval estimation for the difference", 1998, method 10). Two networks
    see the same images, so that it is rather too wide.
    """
    (low_value, _, high), (high_value, low, _) = sorted((one, two))
    return math.hypot(high_value - low, high - low_value)


_TRUST = {"much": "fair", "little": "low", "nothing": "none"}


def trust_text(verdict: str, *, of_networks: bool) -> str:
    """Return how far the scores that chose the widths can be believed, in a word, and what to do.

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
    """Return what a network's file says that it did on the test images.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, OverflowError: it is no such file.
    """
    figures, errors = ({key: float(v) for key, v in state[part].items()} for part in ("figures", "errors"))
    by_class = {int(number): (int(count), float(mean)) for number, (count, mean) in state["by_class"].items()}
    return Measurement(figures, errors, int(state["count"]), by_class)
