"""Timing things against each other: in turns, so that what the machine does meanwhile falls on all of them alike.

Notation: in round `r` thing `a` takes `t_a(r)` seconds. A ratio of two things is the median over the rounds of
`t_a(r) / t_b(r)`, both taken within one round; `low` and `high` are its quartiles.

With one thread the clock is the CPU time of the process: what other work on the machine takes away does not count. With
more it is wall time, since threads that wait for each other compute too; on a GPU as well, read when it has done all
that it was given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

Call = Callable[[], object]
EVERY = slice(None)


@dataclass(frozen=True)
class Figure:
    """One number of a benchmark, with the quartiles it lies between where it is a median over `rounds`."""

    name: str
    value: float
    unit: str
    low: float
    high: float
    rounds: int

    @classmethod
    def single(cls, name: str, value: float, unit: str) -> Figure:
        """A number found once."""
        return cls(name, value, unit, value, value, 1)

    @classmethod
    def median(cls, name: str, values: np.ndarray, unit: str) -> Figure:
        """The median of `values`, shape `(rounds,)`."""
        low, middle, high = np.percentile(values, (25, 50, 75)).tolist()
        return cls(name, middle, unit, low, high, len(values))


@dataclass(frozen=True)
class Turns:
    """Seconds that each thing took, by its name, arrays of shape `(rounds,)`."""

    taken: Mapping[str, np.ndarray]

    def seconds(self, name: str) -> np.ndarray:
        """Seconds of one thing, shape `(rounds,)`."""
        return self.taken[name]

    def ratio(
        self, figure: str, name: str, other: str, *, times: float = 1.0, among: slice | np.ndarray = EVERY
    ) -> Figure:
        """How long `name` takes in units of `times` turns of `other`, in all rounds or `among` some."""
        return Figure.median(figure, (self.taken[name] / (times * self.taken[other]))[among], "ratio")

    def figure(self, figure: str, name: str) -> Figure:
        """Seconds of one thing."""
        return Figure.median(figure, self.taken[name], "s")

    def fastest(self) -> str:
        """The thing with the lowest median."""
        return min(self.taken, key=lambda name: float(np.median(self.taken[name])))


@dataclass(frozen=True)
class Pace:
    """How long a comparison may go on: rounds until `seconds` of the clock are over, but at least `least`."""

    seconds: float
    least: int = 3
    most: int = 40

    def rounds(self, device: str = "cpu") -> Iterator[int]:
        """Numbers of the rounds."""
        end = now(device) + self.seconds
        for number in range(self.most):
            if number >= self.least and now(device) > end:
                return
            yield number


def in_turns(
    arms: Callable[[int], Mapping[str, tuple[Call, Call]]], pace: Pace, *, warmup: int = 1, device: str = "cpu"
) -> Turns:
    """Time all things of a round after each other, round by round.

    `arms(round)` gives for each thing what prepares it, which is not timed, and what is. The first of them is always
    the first: it meets the round's shapes before the others do, whose order rotates. `warmup` rounds do not count.
    """
    taken: dict[str, list[float]] = {}
    for number in range(warmup):
        _round(arms(-1 - number), 0, device)
    for number in pace.rounds(device):
        for name, seconds in _round(arms(number), number, device).items():
            taken.setdefault(name, []).append(seconds)
    return Turns({name: np.array(values) for name, values in taken.items()})


def nothing() -> None:
    """Prepare nothing."""


def _round(arms: Mapping[str, tuple[Call, Call]], shift: int, device: str) -> dict[str, float]:
    first, *others = arms
    shift %= max(1, len(others))
    seconds = {}
    for name in (first, *others[shift:], *others[:shift]):
        prepare, call = arms[name]
        prepare()
        start = now(device)
        call()
        seconds[name] = now(device) - start
    return seconds


def clock(device: str = "cpu") -> Literal["CPU", "wall"]:
    """Which time is taken of what runs on the device."""
    return "CPU" if device == "cpu" and torch.get_num_threads() == 1 else "wall"


def now(device: str = "cpu") -> float:
    """Seconds of that clock."""
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.process_time() if clock(device) == "CPU" else time.perf_counter()


class Waiting:
    """The share of wall time that the main thread was ready to compute and had no core, since it was made."""

    def __init__(self) -> None:
        self._start = self._read()

    def _read(self) -> tuple[float, float]:
        schedstat = Path("/proc/self/schedstat")  # nanoseconds running, nanoseconds on the run queue, turns
        queued = int(schedstat.read_text().split()[1]) / 1e9 if schedstat.is_file() else 0.0
        return time.perf_counter(), queued

    def share(self) -> float:
        """The share so far."""
        wall, queued = self._read()
        return (queued - self._start[1]) / max(wall - self._start[0], 1e-9)
