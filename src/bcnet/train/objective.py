"""The losses of paths on one batch, as a step and its replay both compute them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from bcnet.errors import DataError
from bcnet.machine.precision import Precision, autocast
from bcnet.nests import Nest, count, tensors
from bcnet.train.learner import Learner
from bcnet.train.recipe import Distillation, Recipe
from bcnet.train.step import Pass

_IN_PLACE = Distillation(temperature=1.0, weight=1.0)  # a path at full width teaches by its outputs alone, as they are


@contextmanager
def told_of_batches(x: Nest) -> Iterator[None]:
    """Say what to do where batch norm gets a single value for each channel."""
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
def told_of_labels(outputs: Any, targets: Any) -> Iterator[None]:
    """Say which labels there are where one is none of the network's classes."""
    try:
        yield
    except IndexError as error:
        if not isinstance(targets, torch.Tensor) or "out of bounds" not in str(error):
            raise
        raise DataError(
            f"training labels are classes of the network, from 0 to {outputs.shape[1] - 1}; got "
            f"{int(targets.min())} to {int(targets.max())} in one batch: mend the labels, or give the network a class "
            "for each"
        ) from error


@dataclass
class Objective:
    """`objective(paths)` are the losses, scalars, of paths that share a pass.

    They meet inputs `x` `(batch, ...)` with targets `y`, labels `(batch,)` usually. `precision` is a resolved one;
    `taught` are a teacher's logits `(batch, classes)` where there is one. `classes` is the number of logits, known
    after the first call. `in_place` are the outputs of a path of this step that the others learn, where the strategy
    has one.
    """

    learner: Learner
    recipe: Recipe
    precision: Precision
    x: Nest
    y: Any
    taught: torch.Tensor | None = None
    classes: int = 1
    in_place: Any = None

    def __call__(self, paths: Pass) -> list[torch.Tensor]:
        """The losses, with their graph."""
        with autocast(self.precision, tensors(self.x)[0].device), told_of_batches(self.x):
            outputs = self.learner.forward(self.x, paths)
        with told_of_labels(outputs[0], self.y):
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
