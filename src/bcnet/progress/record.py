"""`progress.json`: the current state of a run, for other processes.

It is rewritten about once a second, without waiting for the disk; the run does not depend on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bcnet.files.documents import parse_json

State = Literal["running", "stopped", "failed", "finished"]
NAME = "progress.json"


@dataclass(frozen=True)
class StageRecord:
    """State of a stage: `done` of `total` units, and a short text `detail`. `file` exists once it is finished."""

    name: str
    total: int
    unit: str
    done: int = 0
    detail: str = ""
    file: str = ""


@dataclass(frozen=True)
class CurveRecord:
    """Training loss of a stage so far: bins of `width` steps, each with last step, count, mean, minimum, maximum."""

    width: int = 1
    bins: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Record:
    """State of a run. Times are seconds since 1970; remaining times are in seconds, None if unknown.

    `stage` is the current one. `message` is the reason of a failure, or the last command's purpose. `curves` are by
    stage, including those of earlier processes.

    """

    state: State
    pid: int
    host: str
    started: float
    updated: float
    stages: tuple[StageRecord, ...] = ()
    stage: str | None = None
    stage_left: float | None = None
    run_left: float | None = None
    message: str = ""
    curves: Mapping[str, CurveRecord] = dataclasses.field(default_factory=dict)


def write_record(folder: Path, record: Record) -> None:
    """Replace the record of the run in `folder`; if it cannot be written, the run continues without it."""
    temporary = folder / f".{NAME}.{os.getpid()}.tmp"
    try:
        temporary.write_text(json.dumps({"format": 1, **dataclasses.asdict(record)}), encoding="utf-8")
        os.replace(temporary, folder / NAME)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()


def read_record(folder: Path) -> Record | None:
    """Return the record of the run in `folder`; None if it is missing or unreadable."""
    try:
        document: dict[str, Any] = parse_json((folder / NAME).read_bytes())
        if document.pop("format") != 1:
            return None
        stages = tuple(StageRecord(**stage) for stage in document.pop("stages"))
        curves = {name: _curve(curve) for name, curve in document.pop("curves", {}).items()}
        return Record(**document, stages=stages, curves=curves)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _curve(document: dict[str, Any]) -> CurveRecord:
    bins = [(last, count, mean, least, largest) for last, count, mean, least, largest in document["bins"]]
    return CurveRecord(int(document["width"]), tuple(tuple(map(float, numbers)) for numbers in bins))
