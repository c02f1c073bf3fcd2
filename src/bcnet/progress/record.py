"""`progress.json`: what a run says about itself while it goes on, for other processes to read.

It is rewritten about once a second and never waited for: a run depends on nothing in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bcnet.files.documents import parse_json

State = Literal["running", "stopped", "failed", "finished"]
NAME = "progress.json"


@dataclass(frozen=True)
class StageRecord:
    """How far a stage is: `done` of `total` units. `detail` are a few words on how it goes, `file` is there once it
    is finished."""

    name: str
    total: int
    unit: str
    done: int = 0
    detail: str = ""
    file: str = ""


@dataclass(frozen=True)
class Record:
    """Where a run is. Times are seconds since 1970; what is left is in seconds, None where unknown.

    `stage` is the one at hand. `message` says why a run failed, or what its last command was to do.
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


def write_record(folder: Path, record: Record) -> None:
    """Replace the record of the run in `folder`; where the file system refuses the run goes on without."""
    temporary = folder / f".{NAME}.{os.getpid()}.tmp"
    try:
        temporary.write_text(json.dumps({"format": 1, **dataclasses.asdict(record)}), encoding="utf-8")
        os.replace(temporary, folder / NAME)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()


def read_record(folder: Path) -> Record | None:
    """The record of the run in `folder`; None where there is none that can be read."""
    try:
        document: dict[str, Any] = parse_json((folder / NAME).read_bytes())
        if document.pop("format") != 1:
            return None
        stages = tuple(StageRecord(**stage) for stage in document.pop("stages"))
        return Record(**document, stages=stages)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
