"""The loss of one path on one batch, as a step and its replay both compute it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bcnet.train.distill import classification_loss
from bcnet.train.precision import autocast
from bcnet.train.recipe import Precision, Recipe
from bcnet.train.step import Path
from bcnet.train.trainee import Trainee


@dataclass
class Objective:
    """`objective(path)` is a path's loss, a scalar, on images `x` `(batch, ...)` and labels `y` `(batch,)`.

    `precision` is a resolved one; `taught` are a teacher's logits `(batch, classes)` where there is one. `classes` is
    the number of logits, known after the first call.
    """

    trainee: Trainee
    recipe: Recipe
    precision: Precision
    x: torch.Tensor
    y: torch.Tensor
    taught: torch.Tensor | None = None
    classes: int = 1

    def __call__(self, path: Path) -> torch.Tensor:
        """The loss, with its graph."""
        with autocast(self.precision, self.x.device):
            logits = self.trainee.forward(self.x, path)
        loss = classification_loss(logits, self.y, self.recipe, self.taught)
        self.classes = logits.shape[1]
        return loss
