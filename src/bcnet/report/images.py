"""Results on test images: figures by class, and some images with each network's outputs."""

from __future__ import annotations

from bcnet.report.evidence import Evidence
from bcnet.report.html import Section, fold, not_yet, paragraph, piece, points, table
from bcnet.run.result import NETWORKS
from bcnet.run.score import largest_class_text
from bcnet.tasks.shown import name_of

_SHOWN = 20  # rows that are not folded


def classes_section(evidence: Evidence) -> Section | None:
    """Return a row for each class, the largest losses of the searched network first; None without classes."""
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


def examples_section(evidence: Evidence) -> Section:
    """Return a table with a row for each image."""
    rows = evidence.examples.get("rows", ())
    if not rows:
        return Section("examples", "Examples", not_yet(_explain_missing(evidence)))
    numbers = ", ".join(map(str, evidence.examples["numbers"]))
    text = (
        f"Test images at equal distances, chosen before anything was trained: number {numbers} of the test set. "
        "They are illustrations; the figures above are for all test images."
    )
    table = piece("examples", evidence.examples["columns"], rows, "What each network gives for some test images")
    return Section("examples", "Examples", paragraph(text) + table)


def _explain_missing(evidence: Evidence) -> str:
    if evidence.examples:
        name = evidence.settings.task.partition(" {")[0]
        return f"The task {name} shows no examples; a custom task can, with its method `show`."
    return "Not available yet: the final networks are not trained."
