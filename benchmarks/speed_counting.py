"""Counting and tracing: candidates costed in a second, and seconds until a network's space is known."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch

from bcnet.machine.timing import prepare_nothing
from bcnet.space import WidthSpace
from benchmarks.speed_turns import Figure, Pace, in_turns
from benchmarks.speed_workloads import Workload

CANDIDATES = 100_000


def figures(work: Workload, pace: Pace) -> Iterator[Figure]:
    """Seconds of a trace, and candidates a second, of random widths."""
    models = iter([copy.deepcopy(work.model) for _ in range(pace.least + 1)])
    example = torch.zeros(2, 3, work.pixels, work.pixels)
    tracing = in_turns(
        lambda number: {"trace": (prepare_nothing, lambda: WidthSpace.trace(next(models), example, multiple_of=1))},
        Pace(0, pace.least, pace.least),
    )
    yield tracing.figure("tracing", "trace")
    full = np.array(work.space.full)
    widths = np.random.default_rng(0).integers(1, full + 1, size=(CANDIDATES, len(full)))
    costing = in_turns(lambda number: {"cost": (prepare_nothing, lambda: work.space.cost(widths))}, pace)
    yield Figure.median("cost", CANDIDATES / costing.seconds("cost"), "candidates/s")
    yield Figure.single("groups", len(full), "groups")
