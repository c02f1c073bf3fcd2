"""Measurement of networks on an engine, robust on a shared machine.

Networks are timed in turns, round by round. A round in which all of them are slow reflects the machine, so each round
is divided by its slowness, and the median of the rest counts. Between sessions the whole machine may become faster or
slower; networks with known earlier times tell by how much.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from bcnet.costs import TimedNetwork
from bcnet.errors import BudgetError
from bcnet.latency.engines import Engine
from bcnet.machine.defaults import threads as torch_threads
from bcnet.machine.measure import BUSY, ROUNDS, median_and_noise, times
from bcnet.machine.timing import Call
from bcnet.pytree import Pytree
from bcnet.space import Widths

TRIES = 3
_LEAST = 4  # networks needed to estimate more than a factor


def engine_times(
    engine: Engine, network: Callable[[Widths], nn.Module], images: Pytree, threads: int
) -> Callable[[Widths], Call]:
    """Return a function that makes a timed call for widths."""
    return lambda widths: engine.prepare(network(widths).eval(), images, threads)


def measure_networks(
    prepared: Callable[[Widths], Call], batch: Sequence[Widths], threads: int, rounds: int | None = None
) -> list[TimedNetwork]:
    """Return the latency of networks timed in turns, by default in as many rounds as a calibration uses."""
    with torch_threads(threads):
        calls = {widths: prepared(widths) for widths in batch}
        nanoseconds, noise = median_and_noise(1e9 * times(list(calls.values()), rounds or ROUNDS))
    return [TimedNetwork(*one) for one in zip(calls, nanoseconds.tolist(), noise.tolist(), strict=True)]


def measure_steadily(
    prepared: Callable[[Widths], Call], batch: Sequence[Widths], threads: int, known: Sequence[TimedNetwork]
) -> list[TimedNetwork]:
    """Return the latencies of a batch, repeating the measurement while the machine is too busy for reliable times.

    Networks with `known` earlier times are timed too, and all results are converted to the machine's speed at that time
    (`_Pace`).

    Raises:
        BudgetError: the machine stays too busy, or was too busy when the times of `known` were taken.
    """
    before = {network.widths: network.nanoseconds for network in known}
    once = functools.cache(prepared)  # writing a file takes seconds
    for _ in range(TRIES):
        found = {m.widths: m for m in measure_networks(once, list(dict.fromkeys((*before, *batch))), threads)}
        # The same networks' times now and then show whether the machine itself has changed.
        pace = _Pace.of([found[w].nanoseconds for w in before], [*before.values()])
        noise = float(np.median([m.noise for m in found.values()]))
        if max(noise, pace.apart) <= BUSY:
            return [dataclasses.replace(found[w], nanoseconds=pace.as_then(found[w].nanoseconds)) for w in batch]
    if noise <= BUSY:
        raise BudgetError(
            "the calibration no longer fits this machine; the times of its networks have changed by factors that "
            f"differ by {pace.apart:.0%}, after {TRIES} tries: the machine is busy, or was during calibration; wait "
            "until it is idle, or calibrate again in a new run directory (--reuse keeps all that does not depend on "
            "times)"
        )
    raise too_busy(noise, f", after {TRIES} tries")


@dataclass(frozen=True)
class _Pace:
    """Change of a machine's speed, from networks with known earlier times: `then = exp(offset) * now ** exponent`.

    A machine that shares its caches slows down small networks by another factor than large ones. `apart` is the
    interquartile range of the networks' deviations from that law. Beyond the `fastest` and `slowest` of them the factor
    is constant.
    """

    exponent: float
    offset: float
    fastest: float
    slowest: float
    apart: float

    @classmethod
    def of(cls, now: Sequence[float], then: Sequence[float]) -> _Pace:
        """Return the pace from the same networks' times now and then; no change without networks."""
        from scipy.stats import theilslopes  # takes a second to import

        if not now:
            return cls(1.0, 0.0, 0.0, np.inf, 0.0)
        here, there = np.log(now), np.log(then)
        exponent = float(theilslopes(there, here)[0]) if len(now) >= _LEAST and np.ptp(here) > 0 else 1.0
        low, offset, high = np.percentile(there - exponent * here, (25, 50, 75)).tolist()
        return cls(exponent, offset, min(now), max(now), float(np.expm1(high - low)))

    def as_then(self, nanoseconds: float) -> float:
        """Return the time that a network would have taken then."""
        # No extrapolation of the power law beyond the networks it was fitted to.
        near = min(max(nanoseconds, self.fastest), self.slowest)
        return float(nanoseconds * np.exp(self.offset) * near ** (self.exponent - 1))


def too_busy(noise: float, when: str = "") -> BudgetError:
    """Return the error for times that are not reliable."""
    return BudgetError(
        f"times are reliable if repeated ones agree; here they differ by {noise:.0%}{when}: the "
        "machine is too busy to measure latencies; wait until it is idle, or calibrate elsewhere"
    )
