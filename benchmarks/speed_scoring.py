"""Scoring a candidate: both of its paths, against plain inference of the two networks built from them.

A path takes the statistics of the batch, as scoring must; a built network does so too in training mode, and has fixed
ones in eval mode, which saves a pass over every feature map. Both rivals have met their shapes before they are timed;
ours has met others: it comes after a few candidates, as it does in a search.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from bcnet.machine.defaults import memory_format
from bcnet.machine.devices import autocast
from bcnet.machine.timing import prepare_nothing
from bcnet.searchers import SupernetEvaluator
from bcnet.space import Side, Widths
from bcnet.supernet import Supernet, build
from benchmarks.speed_turns import Call, Figure, Pace, in_turns
from benchmarks.speed_workloads import Variant, Workload

_BEFORE = 4  # candidates
OURS = "ours"
AGAIN = "ours again"
SAME = "statistics of the batch"
FIXED = "fixed statistics"


def figures(work: Workload, batches: int, pace: Pace) -> Iterator[Figure]:
    """Images scored in a second, `batches` a candidate, and their number in units of what plain inference manages."""
    turns = in_turns(Arms(work, work.chosen, batches), pace, device=work.device)
    images = 2 * batches * work.batch
    yield Figure.median(f"scoring ({work.chosen})", images / turns.seconds(OURS), "images/s")
    yield turns.ratio("scoring / built inference, statistics of the batch", SAME, OURS)
    yield turns.ratio("scoring widths met before / built inference, statistics of the batch", SAME, AGAIN)
    yield turns.ratio("scoring / built inference, fixed statistics", FIXED, OURS)


class Arms:
    """What a round compares: one candidate, both sides."""

    def __init__(self, work: Workload, variant: Variant, batches: int) -> None:
        self._work = work
        self._variant = variant
        self._batches = batches
        self._images = work.images.contiguous(memory_format=memory_format(variant.images))
        self._supernet = Supernet(work.fresh(variant), work.space).eval()
        self._evaluator, self._brief = (
            SupernetEvaluator(self._logits, [(self._images, work.labels)] * count) for count in (batches, 1)
        )
        self._built: list[nn.Module] = []

    def _logits(self, images: torch.Tensor, widths: Widths, side: Side) -> torch.Tensor:
        with autocast(self._variant.precision, images.device):
            logits: torch.Tensor = self._supernet(images, widths, side)
        return logits

    def __call__(self, number: int) -> dict[str, tuple[Call, Call]]:
        """The things of a round."""
        widths = self._work.space.sample(torch.Generator().manual_seed(20_000 + number))
        return {
            OURS: (lambda: self._score_others(number), lambda: self._evaluator(widths)),
            AGAIN: (prepare_nothing, lambda: self._evaluator(widths)),
            SAME: (lambda: self._build(widths, fixed=False), self._infer),
            FIXED: (lambda: self._build(widths, fixed=True), self._infer),
        }

    def _score_others(self, number: int) -> None:
        generator = torch.Generator().manual_seed(1_000_000 + number)
        for _ in range(_BEFORE):
            self._brief(self._work.space.sample(generator))

    def _build(self, widths: Widths, *, fixed: bool) -> None:
        full = self._work.fresh(self._variant)
        self._built = [
            build(full, self._work.space, widths, weights=(self._supernet, side)).train(not fixed) for side in Side
        ]
        self._infer()

    @torch.inference_mode()
    def _infer(self) -> None:
        for network in self._built:
            for _ in range(self._batches):
                with autocast(self._variant.precision, self._images.device):
                    network(self._images)
