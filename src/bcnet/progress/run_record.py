"""A run's record of itself, kept on disk for `bcnet status`."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from bcnet.errors import BCNetError
from bcnet.progress.base import Advance, Reporter
from bcnet.progress.forecast import Forecast, Planned
from bcnet.progress.record import Record, StageRecord, write_record

_PAUSE = 1.0  # seconds between two writes


class RunRecord(Reporter):
    """Writes `progress.json` as the run goes on, and on leaving how it ended.

    Example: `with RunRecord(folder) as record: ...`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._forecast = Forecast()
        self._stages: dict[str, StageRecord] = {}
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
        self._write(
            state="failed" if failed else "stopped" if error is not None else "finished",
            message=told if failed else "",
            stage=None,
        )

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

    def _write(self, **changes: object) -> None:
        self._record = dataclasses.replace(
            self._record,
            updated=time.time(),
            stages=tuple(self._stages.values()),
            stage_left=self._forecast.stage_left,
            run_left=self._forecast.run_left,
            **changes,  # type: ignore[arg-type]
        )
        write_record(self._folder, self._record)
        self._last = time.monotonic()
