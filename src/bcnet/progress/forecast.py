"""Remaining time of a stage and of a whole run, from known amounts of work and measured rates.

Notation: a stage has `n` units of which `d` are done, each of `w` work (multiply-adds; a backward pass counts as two
forward passes). Its rate `r` in units per second is measured over its last minutes.

    remaining in a stage     (n - d) / r
    remaining in a run       that of the current stage, plus n * w / v for every later stage

`v`, work per second, is that of the last measured stage of the same kind, or else of any stage. Without a measured rate
the time is unknown, never guessed. Stages without work are too short to count.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

_WINDOW = 300  # marks, one per second, over which a rate is measured
_EVIDENCE = 2.0  # seconds below which a rate is unreliable


@dataclass(frozen=True)
class Planned:
    """A planned stage: `total` units of `work` each. Stages of one `kind` run at the same speed.

    `file` exists in the run directory once the stage is finished.

    """

    name: str
    total: int
    unit: str
    work: float = 0.0
    kind: str = "training"
    finished: bool = False
    file: str = ""


class Forecast:
    """Follows a run from stage to stage; remaining times are in seconds, None if unknown."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._plan: dict[str, Planned] = {}
        self._speeds: dict[str, float] = {}  # work per second by kind, as last measured
        self._finished: set[str] = set()
        self._stage: Planned | None = None
        self._marks: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self._now = (0.0, 0)
        self._start = clock()

    def plan(self, stages: Sequence[Planned]) -> None:
        """Set the planned stages."""
        self._plan = {stage.name: stage for stage in stages}
        self._finished = {stage.name for stage in stages if stage.finished}

    def begin(self, name: str, total: int, unit: str) -> None:
        """Enter a stage, planned or not."""
        self._stage = replace(self._plan.get(name, Planned(name, total, unit)), total=total)
        self._start = self._clock()
        self._now = (self._start, 0)
        self._marks.clear()

    def advance(self, done: int) -> None:
        """Update the units done.

        The first call sets where this process started, since a stage may be resumed midway.
        """
        now = self._clock()
        if not self._marks:
            self._marks.append((self._start, done - 1))
        elif now - self._marks[-1][0] >= 1.0:
            self._marks.append((now, done))
        self._now = (now, done)
        rate = self._rate()
        if rate is not None and self._stage is not None and self._stage.work:
            self._speeds.pop(self._stage.kind, None)
            self._speeds[self._stage.kind] = rate * self._stage.work

    def end(self) -> None:
        """Leave the stage."""
        if self._stage is not None:
            self._finished.add(self._stage.name)
        self._stage = None

    @property
    def has_plan(self) -> bool:
        """Return whether anything was planned."""
        return bool(self._plan)

    @property
    def seconds(self) -> float:
        """Seconds since the stage was entered."""
        return self._clock() - self._start

    @property
    def stage_left(self) -> float | None:
        """Remaining seconds of the current stage."""
        rate = self._rate()
        if self._stage is None or rate is None:
            return None
        return max(0, self._stage.total - self._now[1]) / rate

    @property
    def run_left(self) -> float | None:
        """Remaining seconds of the whole run; None if unknown, or without a plan."""
        if not self._plan:
            return None
        here = 0.0 if self._stage is None or not self._stage.work else self.stage_left
        ahead = [self._expect_seconds(stage) for stage in self._plan.values() if self._is_ahead(stage)]
        parts = [here, *ahead]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None

    def _is_ahead(self, stage: Planned) -> bool:
        here = self._stage is not None and stage.name == self._stage.name
        return stage.work > 0 and not here and stage.name not in self._finished

    def _expect_seconds(self, stage: Planned) -> float | None:
        speed = self._speeds.get(stage.kind) or next(reversed(self._speeds.values()), None)
        return None if speed is None else stage.total * stage.work / speed

    def _rate(self) -> float | None:
        if not self._marks:
            return None
        then, before = self._marks[0]
        now, done = self._now
        enough = now - then >= _EVIDENCE and done > before
        return (done - before) / (now - then) if enough else None
