"""Provenance of the figures: time per stage, configuration, seed, versions, hardware."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from bcnet.display import duration, stage_title
from bcnet.methods import SupernetMethod, TrainingsMethod
from bcnet.report.evidence import Evidence
from bcnet.report.html import NONE, Section, definition_list, fold, not_yet, piece, table


def time_section(evidence: Evidence) -> Section:
    """Return the seconds of every stage, as bars in a table."""
    seconds = evidence.seconds
    if not seconds:
        return Section("time", "Time", not_yet("No stage has ended yet."))
    longest = max(seconds.values())
    whole = sum(seconds.values())
    rows = [
        (stage_title(stage), duration(taken), 100 * taken / whole, 100 * taken / longest)
        for stage, taken in seconds.items()
    ]
    body = piece("times", rows, duration(whole))
    return Section("time", "Time", body)


def configuration_section(evidence: Evidence) -> Section:
    """Return settings, versions, hardware, and pinned dimensions."""
    settings = evidence.settings.flatten()
    rows = [(key, _plain_value(value)) for key, value in settings.items()]
    body = definition_list(machine_facts(evidence))
    body += fold("Every setting", table(("setting", "value"), rows, "Settings of the run", texts=2))
    fixed = _pinned_table(evidence)
    if fixed:
        body += fold("What was pinned at full width, and why", fixed)
    return Section("configuration", "Configuration", body)


def machine_facts(evidence: Evidence) -> dict[str, Any]:
    """Return seed, budget, machine, training and versions, by name."""
    result = evidence.result
    settings = evidence.settings
    facts: dict[str, Any] = {"seed": settings.seed, "budget": str(settings.budget)}
    method = settings.method
    epochs: dict[str, float] = {"networks": settings.training.epochs}
    if isinstance(method, SupernetMethod):
        facts["strategy"] = method.strategy
        epochs["supernet"] = method.recipe.epochs
    if isinstance(method, TrainingsMethod):
        epochs["candidates"] = method.length
    name = settings.options.device if result is None else result.device.name
    facts["device"] = f"{name}, {settings.options.threads} threads"
    facts["precision"] = settings.training.precision
    facts["epochs"] = ", ".join(f"{what} {count}" for what, count in epochs.items())
    return facts if result is None else facts | result.versions


def _pinned_table(evidence: Evidence) -> Markup:
    if evidence.space is None or not evidence.space.fixed:
        return Markup("")
    rows = [(f.name, f.dim, f.size, f.reason, f.remedy) for f in evidence.space.fixed]
    head = ("parameter", "dimension", "size", "why", "what to do")
    return table(head, rows, "Dimensions pinned at full width", texts=5)


def _plain_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return NONE if value is None else str(value)
