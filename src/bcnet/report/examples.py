"""Some test images, with what was wanted and what each network gives."""

from __future__ import annotations

from bcnet.report.evidence import Evidence
from bcnet.report.html import Section, not_yet, paragraph, piece

_TITLE = "Examples"


def section(evidence: Evidence) -> Section:
    """A table with a row for each image."""
    rows = evidence.examples.get("rows", ())
    if not rows:
        return Section("examples", _TITLE, not_yet(_explain_missing(evidence)))
    numbers = ", ".join(map(str, evidence.examples["numbers"]))
    text = (
        f"Test images at equal distances, chosen before anything was trained: number {numbers} of the test set. "
        "They are for looking at; the figures above are of all test images."
    )
    table = piece("examples", evidence.examples["columns"], rows, "What each network gives for some test images")
    return Section("examples", _TITLE, paragraph(text) + table)


def _explain_missing(evidence: Evidence) -> str:
    if evidence.examples:
        name = evidence.settings.task.partition(" {")[0]
        return f"The task {name} shows no examples: a task of your own does by its method `show`."
    return "Not there yet: they are shown to the final networks once these are trained."
