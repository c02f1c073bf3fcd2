"""Where the time of a step goes, by kind of operator: ours beside the fastest full-width step.

Both are given in units of the whole full-width step, so that the rows of ours add up to what our step takes in those
units, and the difference of two rows says what holds it. As in `speed_steps` others come before them; both take turns,
and of every kind the median step counts. The profiler itself takes time, more where operators are many and small; the
sums are therefore somewhat above what `speed_steps` measures without it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from bcnet.train import NetworkLearner
from benchmarks.speed_steps import OTHERS, WARM, fastest
from benchmarks.speed_turns import Figure, Pace
from benchmarks.speed_workloads import Steps, Workload

KINDS = {
    "convolution and linear": ("conv", "addmm", "aten::mm", "aten::bmm", "linear"),
    "batch norm": ("batch_norm",),
    "copies and casts": ("copy", "contiguous", "clone", "cat", "_to_copy", "aten::to", "reorder", "resize"),
    "update": ("_foreach", "_fused", "optimizer"),
    "activations, sums and pooling": ("relu", "hardtanh", "clamp", "threshold", "pool", "add", "mul", "mean", "sum"),
}
REST = "everything else"


def figures(work: Workload, steps: int) -> Iterator[Figure]:
    """Seconds of every kind in both steps, over the whole full-width step."""
    best = fastest(work, Pace(0, 2))
    own = work.chosen
    ours = Steps(work.supernet_learner(own), work, own)
    full = Steps(NetworkLearner(work.fresh(best)), work, best)
    for number in range(WARM if steps > 1 else 1):
        ours.take(work.terms(OTHERS + number))
    full.take()
    in_turns = [(_by_kind(partial(ours.take, work.terms(n))), _by_kind(full.take)) for n in range(steps)]
    of_ours, of_full = (_medians(seconds) for seconds in zip(*in_turns, strict=True))
    whole = sum(of_full.values())
    for kind in (*KINDS, REST):
        yield Figure.single(f"step: {kind}", of_ours[kind] / whole, "of a full-width step")
        yield Figure.single(f"full-width step: {kind}", of_full[kind] / whole, "of a full-width step")


def _by_kind(call: Callable[[], None]) -> dict[str, float]:
    """Microseconds that operators of each kind took themselves, without those that they called."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        call()
    seconds = dict.fromkeys((*KINDS, REST), 0.0)
    for event in profiled.key_averages():
        if event.device_type == DeviceType.CPU:
            seconds[kind_of(event.key)] += event.self_cpu_time_total
    return seconds


def _medians(seconds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {kind: statistics.median(step[kind] for step in seconds) for kind in seconds[0]}


def kind_of(operator: str) -> str:
    """The first kind one of whose words is in the operator's name."""
    name = operator.lower()
    return next((kind for kind, word in _words() if word in name), REST)


def _words() -> Iterator[tuple[str, str]]:
    return chain.from_iterable(((kind, word) for word in words) for kind, words in KINDS.items())
