"""Timing things against each other: in turns, so that what the machine does meanwhile falls on all of them alike.

Notation: in round `r` thing `a` takes `t_a(r)` seconds. A ratio of two things is the median over the rounds of
`t_a(r) / t_b(r)`, both taken within one round; `low` and `high` are its quartiles.

With one thread the clock is the CPU time of the process: what other work on the machine takes away does not count. With
more it is wall time, since threads that wait for each other compute too; on a GPU as well, read when it has done all
that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from bcnet.machine import timing
from bcnet.machine.timing import Call, Pace

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


def in_turns(
    arms: Callable[[int], Mapping[str, tuple[Call, Call]]], pace: Pace, *, warmup: int = 1, device: str = "cpu"
) -> Turns:
    """Time all things of a round by the benchmarks' clock; the first of them meets the round's shapes first."""
    return Turns(timing.in_turns(arms, pace, warmup=warmup, device=device, clock=clock(device), first_stays=True))


def clock(device: str = "cpu") -> timing.Clock:
    """Which time is taken of what runs on the device."""
    return "CPU" if device == "cpu" and torch.get_num_threads() == 1 else "wall"


def now(device: str = "cpu") -> float:
    """Seconds of that clock."""
    return timing.read_clock(device, clock(device))
