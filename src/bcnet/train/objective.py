"""Losses of paths on one batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from bcnet.errors import DataError
from bcnet.machine.devices import Precision, autocast
from bcnet.pytree import Pytree, count, tensors
from bcnet.train.learner import Learner
from bcnet.train.recipe import Distillation, Recipe
from bcnet.train.step import Pass

_IN_PLACE = Distillation(temperature=1.0, weight=1.0)  # the full-width path teaches by its unsoftened outputs alone


@contextmanager
def explain_batch_errors(x: Pytree) -> Iterator[None]:
    """Explain what to do if batch norm gets a single value per channel."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise DataError(
            f"batch norm needs more than one value for each channel in training; got a batch of {count(x)}: give the "
            "training loader drop_last=True, or a batch size that leaves no single image over"
        ) from error


@contextmanager
def explain_label_errors(outputs: Any, targets: Any) -> Iterator[None]:
    """Name the valid labels if a label is not one of the network's classes."""
    try:
        yield
    except IndexError as error:
        if not isinstance(targets, torch.Tensor) or "out of bounds" not in str(error):
            raise
        raise DataError(
            f"training labels must be classes of the network, from 0 to {outputs.shape[1] - 1}; got "
            f"{int(targets.min())} to {int(targets.max())} in one batch: fix the labels, or give the network a class "
            "for each"
        ) from error


@dataclass
class Objective:
    """`objective(paths)` returns the losses, scalars, of paths that share a pass.

    They are computed for inputs `x` `(batch, ...)` with targets `y`, usually labels `(batch,)`. `precision` is a
    resolved one. `taught` are a teacher's logits `(batch, classes)`, or None. `classes` is the number of logits, known
    after the first call. `in_place` are the outputs of this step's teacher path, which the other paths imitate, or
    None.

    """

    learner: Learner
    recipe: Recipe
    precision: Precision
    x: Pytree
    y: Any
    taught: torch.Tensor | None = None
    classes: int = 1
    in_place: Any = None

    def __call__(self, paths: Pass) -> list[torch.Tensor]:
        """Return the losses with their graph."""
        with autocast(self.precision, tensors(self.x)[0].device), explain_batch_errors(self.x):
            outputs = self.learner.forward(self.x, paths)
        with explain_label_errors(self.learner.task.main_output(outputs[0]), self.y):
            return self._losses(outputs, paths)

    def _losses(self, outputs: Any, paths: Pass) -> list[torch.Tensor]:
        task = self.learner.task
        first = task.main_output(outputs[0])
        matrix = isinstance(first, torch.Tensor) and first.ndim > 1
        self.classes = first.shape[1] if matrix else 1
        learnt = self.in_place
        if self.learner.teaches(paths):
            self.in_place = first.detach()
        if learnt is not None:
            return [task.training_loss(o, self.y, taught=learnt, distilling=_IN_PLACE) for o in outputs]
        return [
            task.training_loss(
                output,
                self.y,
                label_smoothing=self.recipe.label_smoothing,
                taught=self.taught,
                distilling=self.recipe.distillation,
            )
            for output in outputs
        ]
