"""Test figures of the networks, class by class."""

from __future__ import annotations

from bcnet.report.evidence import Evidence
from bcnet.report.html import Section, fold, paragraph, points, table
from bcnet.run.finished import NETWORKS
from bcnet.run.score import largest_class_text
from bcnet.tasks.shown import name_of

_SHOWN = 20  # rows that are not folded


def section(evidence: Evidence) -> Section | None:
    """A row for each class, those first that the searched network loses most on; None where images have no class."""
    networks = [evidence.networks[key] for key in NETWORKS if key in evidence.networks]
    if not networks or not networks[0].by_class:
        return None
    first = networks[0]
    last = networks[-1]
    digits = first.metric.digits
    counts = {number: count for number, (count, _) in first.by_class.items()}
    gains = {number: last.by_class[number][1] - first.by_class[number][1] for number in counts}
    head = ["class", "test images", *(n.label for n in networks)]
    rows = []
    for number in sorted(counts, key=lambda number: (gains[number], number)):
        figures = [f"{n.by_class[number][1]:.{digits}f}" for n in networks]
        rows.append([name_of(number, evidence.class_names), f"{counts[number]:,}", *figures])
        if last is not first:
            rows[-1].append(points(gains[number], digits))
    if last is not first:
        head.append(f"{last.label}, against {first.label}")
    caption = f"{first.metric.column} by class"
    shown = table(head, rows[:_SHOWN], caption)
    if rows[_SHOWN:]:
        shown += fold(f"The other {len(rows) - _SHOWN} classes", table(head, rows[_SHOWN:], caption))
    return Section("classes", "Classes", paragraph(largest_class_text(counts, evidence.class_names)) + shown)
