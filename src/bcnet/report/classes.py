"""Test figures of the networks, class by class."""

from __future__ import annotations

from collections.abc import Mapping

from bcnet.report.evidence import Evidence
from bcnet.report.html import Section, fold, paragraph, points, table
from bcnet.run.finished import NETWORKS
from bcnet.run.score import largest_class_text
from bcnet.tasks.shown import name_of

_SHOWN = 20  # rows that are not folded


def section(evidence: Evidence) -> Section | None:
    """A row for each class, those first that the searched network loses most on; None where images have no class."""
    networks = {key: evidence.networks[key] for key in NETWORKS if key in evidence.networks}
    counts = next((n.by_class for n in networks.values()), {})
    if not counts:
        return None
    first, last = (next(iter(order)) for order in (networks.values(), reversed(networks.values())))
    digits = first.metric.digits

    def loss_of(number: int) -> float:
        return first.by_class[number][1] - last.by_class[number][1]

    rows = [
        (
            name_of(number, evidence.class_names),
            f"{counts[number][0]:,}",
            *(f"{n.by_class[number][1]:.{digits}f}" for n in networks.values()),
            *([points(0.0 - loss_of(number), digits)] if last is not first else []),
        )
        for number in sorted(counts, key=lambda number: (-loss_of(number), number))
    ]
    head = ["class", "test images", *(n.label for n in networks.values())]
    head += [f"{last.label}, against {first.label}"] if last is not first else []
    caption = f"{first.metric.column} by class"
    shown = table(head, rows[:_SHOWN], caption)
    if rows[_SHOWN:]:
        shown += fold(f"The other {len(rows) - _SHOWN} classes", table(head, rows[_SHOWN:], caption))
    numbers: Mapping[int, int] = {number: count for number, (count, _) in counts.items()}
    return Section("classes", "Classes", paragraph(largest_class_text(numbers, evidence.class_names)) + shown)
