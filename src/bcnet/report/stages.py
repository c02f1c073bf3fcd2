"""Where an unfinished run stands."""

from __future__ import annotations

from markupsafe import Markup

from bcnet.report.evidence import Evidence
from bcnet.report.html import piece
from bcnet.run.status import StageStatus, read_status


def unfinished(evidence: Evidence) -> Markup:
    """The stages with their state; nothing where the run is finished."""
    if evidence.result is not None:
        return Markup("")
    status = read_status(evidence.path)
    going = "It is running." if status.state == "running" else "Repeat its command to go on with it."
    return piece(
        "stages",
        f"This run is not finished; the report shows what there is so far. {going} {status.message}",
        [(_kind(stage), stage.record.name, _detail(stage)) for stage in status.stages],
    )


def _kind(stage: StageStatus) -> str:
    if stage.state == "finished":
        return "done"
    return "begun" if stage.state == "at hand" or stage.record.done else "ahead"


def _detail(stage: StageStatus) -> str:
    record = stage.record
    if stage.state == "finished":
        return "finished"
    if not record.done:
        return "not begun" if stage.state == "ahead" else "begun"
    return f"{record.done:,} of {record.total:,} {record.unit}, {record.detail}".rstrip(", ")
