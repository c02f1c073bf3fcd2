"""A whole search: prior, evolution, every evaluation on disk; and how much of it is spent outside the network.

Two searches. In one a supernet scores every candidate, on far fewer images than a real search takes, so that what is
outside weighs more, not less. In the other the score is free: all of its time is the search's own. The CPU clock, that
of one thread, hears nothing of waiting for the disk; what storing takes is therefore given by the wall clock as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from bcnet.machine.defaults import memory_format
from bcnet.machine.devices import autocast
from bcnet.prior import Prior, learn_prior
from bcnet.searchers import Candidate, EvaluationStore, Evolution, SupernetEvaluator, search_widths
from bcnet.space import Budget, Side, Widths, WidthSpace
from bcnet.supernet import Supernet
from benchmarks.speed_turns import Figure, now
from benchmarks.speed_workloads import Variant, Workload

BUDGET = Budget(macs=0.5)
POPULATION = 40
RECORDS = 500


def figures(work: Workload, candidates: int) -> Iterator[Figure]:
    """Seconds of each candidate, and the share of a search outside the network."""
    network = Network(work, work.chosen)
    total, count = searched(work.space, network.evaluator, candidates)
    yield Figure.single("search", total, "s")
    yield Figure.single("candidates", count, "candidates")
    yield Figure.single("search, each candidate", total / count, "s")
    yield Figure.single("outside the network, each candidate", (total - network.seconds) / count, "s")
    yield Figure.single("outside the network / search", (total - network.seconds) / total, "ratio")


def free_figures(work: Workload, candidates: int) -> Iterator[Figure]:
    """Seconds of each candidate where scores cost nothing."""
    weights = np.random.default_rng(1).random(len(work.space.groups))
    storing: list[float] = []
    total, count = searched(work.space, lambda widths: float(weights @ widths), candidates, storing)
    yield Figure.single("free scores, each candidate", total / count, "s")
    yield Figure.single("candidates", count, "candidates")
    yield Figure.median("storing a candidate, wall time", np.array(storing), "s")


class TimedStore(EvaluationStore):
    """A store that appends to `seconds` what each evaluation takes, by the wall clock."""

    seconds: list[float]

    def add(self, candidate: Candidate) -> None:
        """Write one evaluation."""
        start = time.perf_counter()
        super().add(candidate)
        self.seconds.append(time.perf_counter() - start)


def searched(
    space: WidthSpace, score: Callable[[Widths], float], candidates: int, storing: list[float] | None = None
) -> tuple[float, int]:
    """Seconds of a search that starts with learning its prior, and how many candidates it scored.

    What storing each of them takes is appended to `storing`.
    """
    records = _records(space)
    with TemporaryDirectory() as folder, TimedStore(Path(folder) / "evaluations.sqlite", space) as store:
        store.seconds = [] if storing is None else storing
        start = now()
        prior: Prior = learn_prior(space, *records, BUDGET, seed=0)
        searcher = Evolution(POPULATION, candidates // POPULATION, prior=prior)
        found = search_widths(space, score, BUDGET, searcher=searcher, seed=0, store=store)
        return now() - start, len(found.evaluations)


class Network:
    """A supernet that scores, and the seconds that its forward passes took."""

    def __init__(self, work: Workload, variant: Variant) -> None:
        self.seconds = 0.0
        self._variant = variant
        self._supernet = Supernet(work.fresh(variant), work.space).eval()
        images = work.images.contiguous(memory_format=memory_format(variant.images))
        self.evaluator = SupernetEvaluator(self._logits, [(images, work.labels)])

    def _logits(self, images: torch.Tensor, widths: Widths, side: Side) -> torch.Tensor:
        start = now()
        with autocast(self._variant.precision, images.device):
            logits: torch.Tensor = self._supernet(images, widths, side)
        self.seconds += now() - start
        return logits


def _records(space: WidthSpace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses that fall with the widths, with noise: steps `(records,)`, widths `(records, groups)`, losses."""
    generator = torch.Generator().manual_seed(0)
    rng = np.random.default_rng(0)
    widths = np.array([space.sample(generator) for _ in range(RECORDS)])
    losses = 2.3 - (widths / np.array(space.full)).mean(axis=1) + 0.05 * rng.standard_normal(RECORDS)
    return np.arange(RECORDS), widths, losses
