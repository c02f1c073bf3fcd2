"""The targets of an imitation: the original's outputs for the inputs of every part of the data."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bcnet.data import Batch
from bcnet.data.transfer import move
from bcnet.errors import DataError
from bcnet.nests import Nest, call_network
from bcnet.run.parts import Parts
from bcnet.tasks.imitation import LABELS, names_of, output_tensors
from bcnet.train import EpochBatches


class Teacher:
    """The original in eval mode, which gives the targets of inputs."""

    def __init__(self, original: nn.Module) -> None:
        self._network = copy.deepcopy(original).eval().requires_grad_(False)
        self._device = next(self._network.parameters()).device

    @torch.no_grad()
    def __call__(self, x: Nest, labels: Any = None) -> dict[str, Tensor]:
        """The outputs of the original for a batch, by name, with the labels where these are class numbers.

        Raises:
            DataError: an output is NaN or infinite.
        """
        leaves = output_tensors(call_network(self._network, move(x, self._device)))
        if not all(bool(leaf.isfinite().all()) for leaf in leaves):
            raise DataError(
                "the original gives NaN or infinity for some of the inputs, which nothing can imitate: leave these "
                "inputs out, or prepare them as in its training"
            )
        found = names_of(leaves)
        if _are_classes(labels, leaves[0]):
            found[LABELS] = labels.to(self._device)
        return found


@dataclass(frozen=True)
class ImitatedBatches:
    """Training batches with the original's outputs for these very inputs, augmented or not, as targets."""

    batches: EpochBatches
    teacher: Teacher

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass over the batches, in the order that the generator draws."""
        return ((x, self.teacher(x)) for x, _ in self.batches.epoch(generator))


def imitated_parts(parts: Parts, original: nn.Module) -> Parts:
    """Return the parts of the data with the original's outputs as targets; labels stay beside those of the test."""
    teacher = Teacher(original)
    validation, fresh = ([(x, teacher(x)) for x, _ in part] for part in (parts.validation, parts.fresh))
    return Parts(
        ImitatedBatches(parts.training, teacher),
        ImitatedBatches(parts.all_training, teacher),
        validation,
        fresh,
        lambda: ((x, teacher(x, labels)) for x, labels in parts.test()),
    )


def _are_classes(labels: Any, output: Tensor) -> bool:
    """Return whether labels are class numbers `(batch,)` for which the output has an entry each."""
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.ndim != 1 or output.ndim != 2:
        return False
    return len(labels) == 0 or bool((labels >= 0).all() and (labels < output.shape[1]).all())
