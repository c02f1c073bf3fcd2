"""Memory: the peak of a supernet's training steps against the full network's.

Each is measured in a process of its own, whose allocator gives every large tensor back when it is freed, so that the
kernel's high-water mark is what was in use at once: weights, gradients, optimiser, activations, and the operators' own
buffers. What the process held before the network was made is taken off, and so are the pages of libraries, which are
read from their files as code is first called.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from bcnet.train import NetworkLearner
from benchmarks.speed_turns import Figure
from benchmarks.speed_workloads import Steps, Workload
from studies.shared.torchvision_here import let_torchvision_import

_AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # what glibc gives back when freed


def figures(work: Workload, steps: int) -> Iterator[Figure]:
    """Peak bytes of both, and their ratio for the median step and for the worst."""
    full, supernet = (_in_own_process(work, kind, steps) for kind in ("full", "supernet"))
    reference = float(np.median(full))
    yield Figure.median("peak of a full-width step", full / 2**20, "MiB")
    yield Figure.median("peak of a supernet step / full", supernet / reference, "ratio")
    yield Figure.single("highest peak of a supernet step / full", float(supernet.max()) / reference, "ratio")


def peaks(work: Workload, kind: str, steps: int) -> np.ndarray:
    """Bytes held at most in each step, over what this process held before, after one step that does not count."""
    let_torchvision_import()
    variant = work.chosen
    torch.set_num_threads(1)
    work.images, work.labels, work.space  # noqa: B018 - made before the network
    before = _status("RssAnon")
    if kind == "full":
        taken = Steps(NetworkLearner(work.fresh(variant)), work, variant)
        terms = [None] * (steps + 1)
    else:
        taken = Steps(work.supernet_learner(variant), work, variant)
        terms = [work.terms(number) for number in range(steps + 1)]  # type: ignore[misc]
    highest = []
    for plan in terms:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark falls to what is held now
        taken.take(plan)
        highest.append(_status("VmHWM") - _status("RssFile") - before)
    return np.array(highest[1:], dtype=np.float64)


def _in_own_process(work: Workload, kind: str, steps: int) -> np.ndarray:
    spawn = multiprocessing.get_context("spawn")
    with _environment(_AT_ONCE), ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(peaks, Workload(work.network, work.pixels, work.batch), kind, steps).result()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _status(name: str) -> int:
    """Bytes of an entry of the process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))
