"""The losses of paths on one batch, as a step and its replay both compute them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from bcnet.machine.precision import Precision, autocast
from bcnet.nests import Nest, tensors
from bcnet.train.learner import Learner
from bcnet.train.recipe import Distillation, Recipe
from bcnet.train.step import Pass

_IN_PLACE = Distillation(temperature=1.0, weight=1.0)  # a path at full width teaches by its outputs alone, as they are


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
        with autocast(self.precision, tensors(self.x)[0].device):
            outputs = self.learner.forward(self.x, paths)
        first = outputs[0]
        matrix = isinstance(first, torch.Tensor) and first.ndim > 1
        self.classes = first.shape[1] if matrix else 1
        task = self.learner.task
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
