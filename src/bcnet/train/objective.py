"""The losses of paths on one batch, as a step and its replay both compute them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bcnet.machine.precision import Precision, autocast
from bcnet.train.learner import Learner
from bcnet.train.recipe import Recipe
from bcnet.train.step import Pass


@dataclass
class Objective:
    """`objective(paths)` are the losses, scalars, of paths that share a pass.

    They meet images `x` `(batch, ...)` with labels `y` `(batch,)`. `precision` is a resolved one; `taught` are a
    teacher's logits `(batch, classes)` where there is one. `classes` is the number of logits, known after the first
    call.
    """

    learner: Learner
    recipe: Recipe
    precision: Precision
    x: torch.Tensor
    y: torch.Tensor
    taught: torch.Tensor | None = None
    classes: int = 1

    def __call__(self, paths: Pass) -> list[torch.Tensor]:
        """The losses, with their graph."""
        with autocast(self.precision, self.x.device):
            outputs = self.learner.forward(self.x, paths)
        first = outputs[0]
        matrix = isinstance(first, torch.Tensor) and first.ndim > 1
        self.classes = first.shape[1] if matrix else 1
        return [
            self.learner.task.training_loss(
                output,
                self.y,
                label_smoothing=self.recipe.label_smoothing,
                taught=self.taught,
                distilling=self.recipe.distillation,
            )
            for output in outputs
        ]
