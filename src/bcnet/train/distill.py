"""Losses: cross-entropy, and knowledge distillation from a teacher (Hinton et al., 2015).

Notation: `z`, `v` logits of student and teacher, `y` labels, `tau` temperature, `a` the teacher's share:

    (1 - a) * CE(z, y) + a * tau^2 * KL(softmax(v / tau) || softmax(z / tau))
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from bcnet.errors import TrainingError
from bcnet.train.recipe import Recipe

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # logits (batch, classes), labels (batch,) -> ()


def classification_loss(
    logits: torch.Tensor,  # (batch, classes)
    labels: torch.Tensor,  # (batch,)
    recipe: Recipe,
    teacher_logits: torch.Tensor | None = None,  # (batch, classes)
    own: Loss | None = None,
) -> torch.Tensor:
    """The recipe's loss, a scalar: cross-entropy with label smoothing, with a teacher mixed with distillation.

    A loss of the user's `own` takes the place of cross-entropy and label smoothing.

    Raises:
        TrainingError: the network's output is not a matrix of logits with a row per label, or `own` gave no scalar.
    """
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or len(logits) != len(labels):
        got = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise TrainingError(f"the network must return logits (batch, classes), {len(labels)} rows here; got {got}")
    if own is None:
        loss = functional.cross_entropy(logits.float(), labels, label_smoothing=recipe.label_smoothing)
    else:
        loss = _scalar(own(logits.float(), labels))
    if recipe.distillation is None or teacher_logits is None:
        return loss
    share = recipe.distillation.weight
    return (1 - share) * loss + share * distillation_loss(logits, teacher_logits, recipe.distillation.temperature)


def _scalar(loss: object) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise TrainingError(f"a loss of your own gives a tensor of one number; got {got}: take the mean over the batch")
    return loss.reshape(())


def distillation_loss(logits: torch.Tensor, teacher_logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """`tau^2 * KL(teacher || student)` at temperature `tau`, mean over the batch; both `(batch, classes)`."""
    student = functional.log_softmax(logits.float() / temperature, dim=1)
    teacher = functional.log_softmax(teacher_logits.float() / temperature, dim=1)
    return functional.kl_div(student, teacher, reduction="batchmean", log_target=True) * temperature**2
