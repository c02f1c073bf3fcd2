"""Timing calls against each other: alternating, so that what the machine does meanwhile falls on all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one call: `median`, and the quartiles `low` and `high`, over `count` calls."""

    median: float
    low: float
    high: float
    count: int


def alternating(
    calls: Mapping[str, Callable[[], object]], *, rounds: int, warmup: int, finish: Callable[[], object] | None = None
) -> dict[str, Timing]:
    """Time every call `rounds` times, in turns whose order rotates, after `warmup` rounds that do not count.

    `finish` waits for the device where calls return before their work is done.
    """
    names = list(calls)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(warmup + rounds):
        shift = number % len(names)
        for name in (*names[shift:], *names[:shift]):
            start = time.perf_counter()
            calls[name]()
            if finish is not None:
                finish()
            if number >= warmup:
                taken[name].append(1000 * (time.perf_counter() - start))
    return {name: _summary(values) for name, values in taken.items()}


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _summary(values: list[float]) -> Timing:
    low, median, high = np.percentile(values, (25, 50, 75)).tolist()
    return Timing(median, low, high, len(values))
