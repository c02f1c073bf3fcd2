"""How long a GPU waits for its host, and what it holds.

The seconds that a GPU computes in a step are those of its kernels and copies, as the profiler saw them (CUPTI); the
step's own seconds are taken without the profiler, which slows the host. What is left over it waited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from bcnet.machine.timing import prepare_nothing
from bcnet.train import NetworkLearner
from benchmarks.speed_steps import OTHERS, WARM
from benchmarks.speed_turns import Call, Figure, Pace, in_turns
from benchmarks.speed_workloads import Steps, Workload

_PROFILED = 5  # steps
OURS = "ours"
FULL = "full"


def figures(work: Workload, pace: Pace) -> Iterator[Figure]:
    """The shares of both steps that the GPU waits, and what our step holds at most beside the full network's."""
    own = work.chosen
    ours = Steps(work.supernet_learner(own), work, own)
    full = Steps(NetworkLearner(work.fresh(own)), work, own)
    for number in range(WARM if pace.seconds else 1):
        ours.take(work.terms(OTHERS + number))
    full.take()
    calls: dict[str, Callable[[int], None]] = {
        OURS: lambda number: ours.take(work.terms(number)),
        FULL: lambda number: full.take(),
    }

    def arms(number: int) -> dict[str, tuple[Call, Call]]:
        return {name: (prepare_nothing, partial(call, number)) for name, call in calls.items()}

    turns = in_turns(arms, pace, device=work.device)
    for name, title in ((OURS, "supernet step"), (FULL, "full-width step")):
        waits = 1 - computing(calls[name]) / turns.seconds(name)
        yield Figure.median(f"share that the GPU waits in a {title}", waits, "ratio")
    peaks = {name: peak(call, work.device) for name, call in calls.items()}
    yield Figure.single("peak of a supernet step", peaks[OURS] / 2**20, "MiB")
    yield Figure.single("peak of a supernet step / full", peaks[OURS] / peaks[FULL], "ratio")


def computing(call: Callable[[int], None]) -> float:
    """Seconds of a step that the GPU computes or copies, in the mean of several."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for number in range(_PROFILED):
            call(number)
        torch.cuda.synchronize()
    spans = [event.time_range for event in profiled.events() if event.device_type == DeviceType.CUDA]
    return covered([(span.start, span.end) for span in spans]) / 1e6 / _PROFILED


def covered(spans: list[tuple[float, float]]) -> float:
    """The length of the union of intervals: streams compute at the same time."""
    whole = 0.0
    end = float("-inf")
    for start, stop in sorted(spans):
        whole += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return whole


def peak(call: Callable[[int], None], device: str) -> int:
    """Bytes that tensors take at most in some steps; both networks, and their optimisers, are there throughout."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    for number in range(_PROFILED):
        call(number)
    return torch.cuda.max_memory_allocated(device)
