"""Durations, sizes and scores for people, and small HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STAGES = {"trials": "short trainings"}
_MOST = 60  # rows
_FORMATS = {"accuracy": (".2f", " %"), "loss": (".4f", ""), "own": (".4g", "")}
_TITLES = {"accuracy": "score (%)", "loss": "score (negative loss)", "own": "score"}


def duration(seconds: float) -> str:
    """Format a duration in seconds.

    Example: `duration(0.02) == "0.02 s"`, `duration(563) == "9 min 23 s"`, `duration(4800) == "1 h 20 min"`.
    """
    if seconds < 1:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{rest} s"


def size(count: float) -> str:
    """Format a number of bytes.

    Example: `size(2_254_857_830) == "2.1 GiB"`.
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit in ("bytes", "KiB") or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def trainings_text(count: float) -> str:
    """Format a number of trainings with two digits, or as a whole number.

    Example: `trainings_text(2.413) == "2.4"`, `trainings_text(150.2) == "150"`.
    """
    return f"{count:.2g}" if count < 10 else f"{count:,.0f}"


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = ()) -> str:
    """Return an HTML table of escaped values. Integers get thousands separators; long tables are truncated."""
    listed = list(rows)
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in listed[:_MOST])
    cut = [f"{len(listed) - _MOST:,} more rows"] if len(listed) > _MOST else []
    below = "".join(f"<p>{escape(note)}</p>" for note in (*cut, *notes))
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"
    )


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f'<td style="text-align: left">{escape(str(value))}</td>'
    return f"<td>{value:,}</td>" if isinstance(value, int) else f"<td>{value:.4g}</td>"


def stage_title(name: str) -> str:
    """Return the title of a stage for people."""
    return _STAGES.get(name, name)


def score_text(score: float, metric: str, *, unit: bool = True) -> str:
    """Format a score with its significant digits and its unit.

    Example: `score_text(91.5, "accuracy")` is "91.50 %", `score_text(-0.25, "loss")` is "-0.2500".
    """
    digits, name = _FORMATS[metric]
    return f"{score:{digits}}{name}" if unit else f"{score:{digits}}"


def axis_title(metric: str) -> str:
    """Return the title of a plot axis for this score."""
    return _TITLES[metric]
