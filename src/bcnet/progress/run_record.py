"""A run's record of itself, kept on disk for `bcnet status` and `bcnet watch`."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from bcnet.errors import BCNetError
from bcnet.progress.base import Advance, Reporter
from bcnet.progress.forecast import Forecast, Planned
from bcnet.progress.loss_curve import LossCurve
from bcnet.progress.record import CurveRecord, Record, StageRecord, read_record, write_record

_PAUSE = 1.0  # seconds between two writes


class RunRecord(Reporter):
    """Writes `progress.json` as the run goes on, and on leaving how it ended.

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
        told = str(error) if isinstance(error, BCNetError) else f"{type(error).__name__}: {error}"
        state = "finished"
        if error is not None:
            state = "failed" if failed else "stopped"
        self._write(state=state, message=told if failed else "", stage=None)

    def plan(self, stages: Sequence[Planned]) -> None:
        """Note all stages, the finished ones as done."""
        self._forecast.plan(stages)
        for s in stages:
            self._stages[s.name] = StageRecord(s.name, s.total, s.unit, s.total if s.finished else 0, file=s.file)

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Write how far the stage is, about once a second."""
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
