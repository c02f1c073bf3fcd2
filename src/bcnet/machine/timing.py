"""Timing in turns, so that disturbances of the machine affect all things alike."""

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
    """Length of a comparison: rounds until `seconds` have passed, at least `least` and at most `most`."""

    seconds: float
    least: int = 3
    most: int = 40

    @classmethod
    def of_rounds(cls, count: int) -> Pace:
        """Return a pace with a fixed number of rounds."""
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
    """Time all things once per round, in a rotating order.

    `arms(round)` returns for each thing an untimed preparation and the timed call. With `first_stays` the first one is
    always first, so it bears the cost of anything new in a round. `warmup` rounds, with the numbers -1, -2, ..., are
    not counted. The clock is read only after a GPU has finished.

    Returns:
        Seconds of each thing by name, `(rounds,)`.
    """
    taken: dict[str, list[float]] = {}
    fixed = 1 if first_stays else 0

    def one_round(number: int, shift: int) -> dict[str, float]:
        things = arms(number)
        names = list(things)
        turning = names[fixed:]
        shift %= max(1, len(turning))
        seconds = {}
        # A thing that always follows the same neighbour would inherit its warm or cold caches.
        for name in (*names[:fixed], *turning[shift:], *turning[:shift]):
            prepare, call = things[name]
            prepare()
            start = read_clock(device, clock)
            call()
            seconds[name] = read_clock(device, clock) - start
        return seconds

    for number in range(warmup):
        one_round(-1 - number, 0)
    end = read_clock(device, clock) + pace.seconds
    for number in range(pace.most):
        if number >= pace.least and read_clock(device, clock) > end:
            break
        for name, seconds in one_round(number, number).items():
            taken.setdefault(name, []).append(seconds)
    return {name: np.array(values) for name, values in taken.items()}


def prepare_nothing() -> None:
    """Do nothing."""


def read_clock(device: str = "cpu", clock: Clock = "wall") -> float:
    """Return the seconds of a clock, after a GPU has finished."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.process_time() if clock == "CPU" else time.perf_counter()


class Stopwatch:
    """Wall seconds since its creation, and seconds in which the main thread was runnable but had no core."""

    def __init__(self) -> None:
        self._start = self._read_clocks()

    def _read_clocks(self) -> tuple[float, float]:
        schedstat = Path("/proc/self/schedstat")  # nanoseconds running, nanoseconds queued, time slices
        queued = int(schedstat.read_text().split()[1]) / 1e9 if schedstat.is_file() else 0.0
        return time.perf_counter(), queued

    def read(self) -> tuple[float, float]:
        """Return both so far; 0 waiting seconds if the system does not report them."""
        wall, queued = self._read_clocks()
        return wall - self._start[0], queued - self._start[1]

    def waiting_share(self) -> float:
        """Return the share of time without a core."""
        wall, queued = self.read()
        return queued / max(wall, 1e-9)


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one call: `median`, and the quartiles `low` and `high`, over `count` calls."""

    median: float
    low: float
    high: float
    count: int


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], *, rounds: int, warmup: int, device: str = "cpu"
) -> dict[str, Timing]:
    """Time every call `rounds` times in turns with rotating order, after `warmup` uncounted rounds."""
    arms = {name: (prepare_nothing, call) for name, call in calls.items()}
    taken = in_turns(lambda _: arms, Pace.of_rounds(rounds), warmup=warmup, device=device)
    timings = {}
    for name, seconds in taken.items():
        low, median, high = np.percentile(1000 * seconds, (25, 50, 75)).tolist()
        timings[name] = Timing(median, low, high, len(seconds))
    return timings
