"""`progress.json`: what a run says about itself while it goes on, for other processes to read.

It is rewritten about once a second and never waited for: a run depends on nothing in it.
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
    """The state of a stage: `done` of `total` units. `detail` are a few words on how it goes, `file` is there once it
    is finished."""

    name: str
    total: int
    unit: str
    done: int = 0
    detail: str = ""
    file: str = ""


@dataclass(frozen=True)
class CurveRecord:
    """The training loss of a stage so far: bins of `width` steps, each with last step, count, mean, least, largest."""

    width: int = 1
    bins: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Record:
    """The state of a run. Times are seconds since 1970; what is left is in seconds, None where unknown.

    `stage` is the one at hand. `message` says why a run failed, or what its last command was to do. `curves` are by
    stage, those of the processes before included.
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
        curves = {name: _curve(curve) for name, curve in document.pop("curves", {}).items()}
        return Record(**document, stages=stages, curves=curves)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _curve(document: dict[str, Any]) -> CurveRecord:
    bins = [(last, count, mean, least, largest) for last, count, mean, least, largest in document["bins"]]
    return CurveRecord(int(document["width"]), tuple(tuple(map(float, numbers)) for numbers in bins))
