"""Targets of an imitation: the original's outputs for the inputs of every part of the data."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from bcnet.data import Batch
from bcnet.data.loaders import LoaderBatches
from bcnet.data.transfer import move
from bcnet.data.unlabelled import Inputs
from bcnet.errors import DataError
from bcnet.pytree import Pytree, call_model
from bcnet.run.parts import Parts
from bcnet.tasks.imitation import LABELS, Imitation, names_of
from bcnet.train import EpochBatches

_AT_ONCE = 64  # inputs
_MOST_BYTES = 2**30  # a constant, since results must not depend on free memory


class Teacher:
    """The original in eval mode, which provides the targets."""

    def __init__(self, original: nn.Module, task: Imitation) -> None:
        self._task = task
        self._network = copy.deepcopy(original).eval().requires_grad_(False)
        self._device = next(self._network.parameters()).device

    @torch.no_grad()
    def __call__(self, x: Pytree, labels: Any = None) -> dict[str, Tensor]:
        """Return the original's outputs for a batch by name, with the labels if they are class numbers.

        Raises:
            DataError: an output is NaN or infinite.
        """
        leaves = self._task.answers(call_model(self._network, move(x, self._device)))
        if not all(bool(leaf.isfinite().all()) for leaf in leaves):
            raise DataError(
                "the original gives NaN or infinity for some of the inputs, which nothing can imitate: leave these "
                "inputs out, or prepare them as in its training"
            )
        found = names_of(leaves)
        if _are_classes(labels, leaves[0]):
            found[LABELS] = labels.to(self._device)
        return found


@dataclass(frozen=True, eq=False)
class ImitatedBatches:
    """Training batches with the original's outputs for these inputs (augmented or not) as targets.

    If inputs are the same in every epoch and the outputs take at most a gigabyte, outputs are computed once, in order.
    The targets are then the same wherever a run was interrupted.
    """

    batches: EpochBatches
    teacher: Teacher

    def __len__(self) -> int:
        return len(self.batches)

    @cached_property
    def answers_once(self) -> bool:
        """Return whether the original runs once for each input, not in every epoch."""
        inputs = self._inputs
        if inputs is None:
            return False
        answers = {count: self.teacher(next(self._in_order(inputs, count))).values() for count in (1, 2)}
        if any(answer.ndim == 0 or len(answer) != count for count, found in answers.items() for answer in found):
            return False  # outputs without one row per input; training reports this
        return sum(answer.nbytes for answer in answers[1]) * len(inputs) <= _MOST_BYTES

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """Iterate over the batches in an order drawn from the generator."""
        if not self.answers_once:
            return ((x, self.teacher(x)) for x, _ in self.batches.epoch(generator))
        return (
            (x, {name: rows[numbers.long().to(rows.device)] for name, rows in self._answers.items()})
            for x, numbers in self.batches.epoch(generator)
        )

    @cached_property
    def _answers(self) -> dict[str, Tensor]:
        """Outputs of the original for each input, in order."""
        assert self._inputs is not None
        parts = [self.teacher(x) for x in self._in_order(self._inputs, _AT_ONCE)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    @property
    def _inputs(self) -> Inputs | None:
        data = getattr(self.batches.loader, "dataset", None) if isinstance(self.batches, LoaderBatches) else None
        return data if isinstance(data, Inputs) else None

    def _in_order(self, inputs: Inputs, size: int) -> Iterator[Pytree]:
        """Iterate over the inputs as in training batches, a few at a time."""
        assert isinstance(self.batches, LoaderBatches)
        generator = torch.Generator()  # a loader always draws a seed for its workers
        return map(self.batches.laid_out, (x for x, _ in inputs.loader(size, generator=generator)))


def imitated_parts(parts: Parts, original: nn.Module, task: Imitation) -> Parts:
    """Return the parts of the data with the original's outputs as targets; labels are kept for the test."""
    teacher = Teacher(original, task)
    training = ImitatedBatches(parts.training, teacher)
    alike = parts.all_training is parts.training  # then the targets are the same too
    validation, fresh = ([(x, teacher(x)) for x, _ in part] for part in (parts.validation, parts.fresh))
    return Parts(
        training,
        training if alike else ImitatedBatches(parts.all_training, teacher),
        validation,
        fresh,
        lambda: ((x, teacher(x, labels)) for x, labels in parts.test()),
    )


def _are_classes(labels: Any, output: Tensor) -> bool:
    """Return whether labels are class numbers `(batch,)` with an entry in the output for each."""
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.ndim != 1 or output.ndim != 2:
        return False
    return len(labels) == 0 or bool((labels >= 0).all() and (labels < output.shape[1]).all())
