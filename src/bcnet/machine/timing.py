"""Timing things against each other: in turns, so that what the machine does meanwhile falls on all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

Call = Callable[[], object]
Clock = Literal["CPU", "wall"]
Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pace:
    """The length of a comparison: rounds until `seconds` of the clock are over, at least `least`, at most `most`."""

    seconds: float
    least: int = 3
    most: int = 40

    @classmethod
    def of_rounds(cls, count: int) -> Pace:
        """So many rounds, however long they take."""
        return cls(0.0, count, count)


def in_turns(
    arms: Callable[[int], Mapping[str, tuple[Call, Call]]],
    pace: Pace,
    *,
    warmup: int = 1,
    device: str = "cpu",
    clock: Clock = "wall",
    first_stays: bool = False,
) -> dict[str, Seconds]:
    """Time all things of a round one after the other, round by round, in an order that rotates.

    `arms(round)` gives for each thing what prepares it, which is not timed, and what is. With `first_stays` the first
    of them is always the first: it meets what is new in a round before the others do. `warmup` rounds do not count;
    their numbers are -1, -2, ... A GPU has done all that it was given whenever the clock is read.

    Returns:
        Seconds of each thing, by its name, `(rounds,)`.
    """
    taken: dict[str, list[float]] = {}
    fixed = 1 if first_stays else 0

    def one_round(number: int, shift: int) -> dict[str, float]:
        things = arms(number)
        names = list(things)
        turning = names[fixed:]
        shift %= max(1, len(turning))
        seconds = {}
        for name in (*names[:fixed], *turning[shift:], *turning[:shift]):
            prepare, call = things[name]
            prepare()
            start = now(device, clock)
            call()
            seconds[name] = now(device, clock) - start
        return seconds

    for number in range(warmup):
        one_round(-1 - number, 0)
    end = now(device, clock) + pace.seconds
    for number in range(pace.most):
        if number >= pace.least and now(device, clock) > end:
            break
        for name, seconds in one_round(number, number).items():
            taken.setdefault(name, []).append(seconds)
    return {name: np.array(values) for name, values in taken.items()}


def prepare_nothing() -> None:
    """Prepare nothing."""


def now(device: str = "cpu", clock: Clock = "wall") -> float:
    """Seconds of a clock, of a GPU when it has done all that it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.process_time() if clock == "CPU" else time.perf_counter()


class Stopwatch:
    """Wall seconds since it was made, and seconds that the main thread was ready to compute and had no core."""

    def __init__(self) -> None:
        self._start = self._now()

    def _now(self) -> tuple[float, float]:
        schedstat = Path("/proc/self/schedstat")  # nanoseconds running, nanoseconds on the run queue, turns
        queued = int(schedstat.read_text().split()[1]) / 1e9 if schedstat.is_file() else 0.0
        return time.perf_counter(), queued

    def read(self) -> tuple[float, float]:
        """Both so far; where the system does not say, nobody waited."""
        wall, queued = self._now()
        return wall - self._start[0], queued - self._start[1]

    def waiting_share(self) -> float:
        """The share of the time without a core."""
        wall, queued = self.read()
        return queued / max(wall, 1e-9)
