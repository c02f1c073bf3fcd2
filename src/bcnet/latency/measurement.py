"""Times of networks on an engine, taken so that they say something on a machine that others share.

Networks are timed in turns, round by round. A round in which all of them are slow says that the machine was, not the
networks: each round is divided by how slow it was, and of what is left the median counts. From one calibration to the
next day the machine as a whole may be faster or slower; networks whose times are known from before tell by how much.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from torch import nn

from bcnet.costs import TimedNetwork
from bcnet.errors import BudgetError
from bcnet.latency.engines import Engine
from bcnet.machine.defaults import threads as torch_threads
from bcnet.machine.measure import BUSY, ROUNDS, median_and_noise, times
from bcnet.machine.timing import Call
from bcnet.nests import Nest
from bcnet.space import Widths

TRIES = 3


def engine_times(
    engine: Engine, network: Callable[[Widths], nn.Module], images: Nest, threads: int
) -> Callable[[Widths], Call]:
    """Return what makes a timed call of widths."""
    return lambda widths: engine.prepare(network(widths).eval(), images, threads)


def measure_networks(
    prepared: Callable[[Widths], Call], batch: Sequence[Widths], threads: int, rounds: int | None = None
) -> list[TimedNetwork]:
    """The latency of some networks, timed in turns, in as many rounds as a calibration takes unless told otherwise."""
    with torch_threads(threads):
        calls = {widths: prepared(widths) for widths in batch}
        nanoseconds, noise = median_and_noise(1e9 * times(list(calls.values()), rounds or ROUNDS))
    return [TimedNetwork(*one) for one in zip(calls, nanoseconds.tolist(), noise.tolist(), strict=True)]


def measure_steadily(
    prepared: Callable[[Widths], Call], batch: Sequence[Widths], threads: int, known: Sequence[TimedNetwork]
) -> list[TimedNetwork]:
    """The latencies of a batch, measured again while the machine is too busy for them to say anything.

    Networks that are `known` from before are timed with them, and all are told at the pace at which these took what
    they took then.

    Raises:
        BudgetError: the machine stays too busy.
    """
    before = {network.widths: network.nanoseconds for network in known}
    once = functools.cache(prepared)  # writing a file takes seconds
    for _ in range(TRIES):
        found = {m.widths: m for m in measure_networks(once, list(dict.fromkeys((*before, *batch))), threads)}
        paces = np.array([before[w] / found[w].nanoseconds for w in before] or [1.0])
        low, pace, high = np.percentile(paces, (25, 50, 75)).tolist()
        noise = max(float(np.median([m.noise for m in found.values()])), (high - low) / pace)
        if noise <= BUSY:
            return [dataclasses.replace(found[w], nanoseconds=found[w].nanoseconds * pace) for w in batch]
    raise too_busy(noise, f", after {TRIES} tries")


def too_busy(noise: float, when: str = "") -> BudgetError:
    """Return what is said instead of a number."""
    return BudgetError(
        f"times say something where they are the same when taken again; here they lie {noise:.0%} apart{when}: the "
        "machine is too busy to measure latencies; wait for it to be calm, or calibrate elsewhere"
    )
