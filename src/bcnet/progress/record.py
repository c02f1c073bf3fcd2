"""`progress.json`: the current state of a run, for other processes.

It is rewritten about once a second, without waiting for the disk; the run does not depend on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from bcnet.errors import BCNetError
from bcnet.files.documents import parse_json
from bcnet.progress.base import Advance, Reporter
from bcnet.progress.forecast import Forecast, Planned

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


_PAUSE = 1.0  # seconds between two writes
_BINS = 200  # about one per distinguishable pixel of a chart


class RunRecord(Reporter):
    """Writes `progress.json` during the run, and how it ended.

    Example: `with RunRecord(folder) as record: ...`.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._forecast = Forecast()
        self._stages: dict[str, StageRecord] = {}
        before = read_record(folder)
        curves = {} if before is None else before.curves
        self._curves = {name: LossCurve([*map(list, old.bins)], old.width) for name, old in curves.items()}
        now = time.time()
        self._record = Record("running", os.getpid(), platform.node(), started=now, updated=now)
        self._last = 0.0

    def __enter__(self) -> RunRecord:
        self._write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed = error is not None and isinstance(error, Exception)
        message = str(error) if isinstance(error, BCNetError) else f"{type(error).__name__}: {error}"
        state = "finished"
        if error is not None:
            state = "failed" if failed else "stopped"
        self._write(state=state, message=message if failed else "", stage=None)

    def plan(self, stages: Sequence[Planned]) -> None:
        """Record all stages, finished ones as done."""
        self._forecast.plan(stages)
        for s in stages:
            self._stages[s.name] = StageRecord(s.name, s.total, s.unit, s.total if s.finished else 0, file=s.file)

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Write the stage's progress about once a second."""
        self._forecast.begin(name, total, unit)
        file = self._stages[name].file if name in self._stages else ""
        self._stages[name] = StageRecord(name, total, unit, file=file)
        self._write(stage=name)

        def advance(done: int, detail: str) -> None:
            self._forecast.advance(done)
            if time.monotonic() - self._last >= _PAUSE or done >= total:
                self._stages[name] = StageRecord(name, total, unit, done, detail, file)
                self._write()

        yield advance
        self._forecast.end()
        self._write(stage=None)

    def figures(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Add the loss of a step to the stage's curve."""
        if "loss" in values:
            self._curves.setdefault(stage, LossCurve()).add(step, values["loss"])

    def _write(self, **changes: object) -> None:
        self._record = dataclasses.replace(
            self._record,
            updated=time.time(),
            stages=tuple(self._stages.values()),
            stage_left=self._forecast.stage_left,
            run_left=self._forecast.run_left,
            curves={
                name: CurveRecord(curve.width, tuple(tuple(narrow) for narrow in curve.bins))
                for name, curve in self._curves.items()
            },
            **changes,  # type: ignore[arg-type]
        )
        write_record(self._folder, self._record)
        self._last = time.monotonic()


Bin = list[float]  # last step, count, mean, minimum and maximum loss


class LossCurve:
    """Collects the loss of every step in at most 200 bins with count, mean, minimum and maximum.

    Bins are `width` steps wide; the width doubles when there would be more. Steps repeated after a resume from a
    checkpoint replace the bins that had them.

    Example: `curve.add(1, 2.3)`.

    """

    def __init__(self, bins: Sequence[Bin] = (), width: int = 1) -> None:
        self.bins = [list(old) for old in bins]
        self.width = width

    def add(self, step: int, loss: float) -> None:
        """Add the loss after `step`, counted from one; values that are not finite are ignored."""
        while self.bins and self.bins[-1][0] >= step:
            self.bins.pop()
        if not math.isfinite(loss):
            return
        new: Bin = [step, 1, loss, loss, loss]
        if self.bins and self._are_one(self.bins[-1], new):
            self.bins[-1] = _merge_bins(self.bins[-1], new)
        else:
            self.bins.append(new)
        while len(self.bins) > _BINS:
            self._widen()

    def _widen(self) -> None:
        self.width *= 2
        merged: list[Bin] = []
        for narrow in self.bins:
            if merged and self._are_one(merged[-1], narrow):
                merged[-1] = _merge_bins(merged[-1], narrow)
            else:
                merged.append(narrow)
        self.bins = merged

    def _are_one(self, one: Bin, two: Bin) -> bool:
        return (one[0] - 1) // self.width == (two[0] - 1) // self.width


def _merge_bins(one: Bin, two: Bin) -> Bin:
    count = one[1] + two[1]
    mean = (one[1] * one[2] + two[1] * two[2]) / count
    return [two[0], count, mean, min(one[3], two[3]), max(one[4], two[4])]
