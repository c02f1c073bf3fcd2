"""Timing of calls in milliseconds: median and quartiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from bcnet.machine.timing import Pace, in_turns, prepare_nothing


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
