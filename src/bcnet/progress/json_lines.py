"""Progress as JSON lines (`--log json`; docs/live.md lists the fields)."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from bcnet.progress.base import Advance, Reporter
from bcnet.progress.forecast import Forecast, Planned

_PAUSE = 1.0  # seconds between two progress events


class JsonReporter(Reporter):
    """Events `plan`, `start`, `progress`, `end`, `note`, `result` and `error`, each with `event` and `time`.

    `time` is in seconds since 1970. Progress is written at most once a second, and at the end of every stage.

    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._forecast = Forecast()
        self._figures: dict[str, float | None] = {}

    def plan(self, stages: Sequence[Planned]) -> None:
        """Write the plan."""
        self._forecast.plan(stages)
        rows = [{"stage": s.name, "total": s.total, "unit": s.unit, "finished": s.finished} for s in stages]
        self.tell("plan", stages=rows)

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Write start, progress and end of a stage."""
        last = 0.0
        self._figures = {}
        self._forecast.begin(name, total, unit)
        self.tell("start", stage=name, total=total, unit=unit)

        def advance(done: int, detail: str) -> None:
            nonlocal last
            self._forecast.advance(done)
            if time.monotonic() - last >= _PAUSE or done == total:
                last = time.monotonic()
                self._progress(name, done, total)

        yield advance
        seconds = self._forecast.seconds
        self._forecast.end()
        self.tell("end", stage=name, seconds=round(seconds, 3))

    def _progress(self, name: str, done: int, total: int) -> None:
        self.tell(
            "progress",
            stage=name,
            done=done,
            total=total,
            stage_seconds_left=_round(self._forecast.stage_left),
            run_seconds_left=_round(self._forecast.run_left),
            figures=self._figures,
        )

    def figures(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Keep the figures for the next progress event."""
        self._figures = {"step": step, **{name: v if math.isfinite(v) else None for name, v in values.items()}}

    def note(self, text: str) -> None:
        """Write the remark."""
        self.tell("note", text=text)

    def tell(self, event: str, **fields: Any) -> None:
        """Write one line and flush."""
        line = json.dumps({"event": event, "time": round(time.time(), 3), **fields}, ensure_ascii=False)
        self._file.write(line + "\n")
        self._file.flush()


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
