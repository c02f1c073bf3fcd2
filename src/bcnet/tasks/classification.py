"""Classification: one label per image, cross-entropy, top-1 accuracy.

Notation: `z` and `v` are logits of student and teacher, `y` labels, `tau` the temperature, `a` the teacher's share:

    (1 - a) * CE(z, y) + a * tau^2 * KL(softmax(v / tau) || softmax(z / tau))      (Hinton et al., 2015)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from bcnet.errors import DataError, ModelError, RecipeError, TrainingError
from bcnet.measurement import Metric
from bcnet.tasks.base import Distilling, Task, named_logits, scalar, shape_of, single_tensor
from bcnet.tasks.shown import Shown, name_of

_AUXILIARY = 0.3  # weight of an auxiliary head's loss
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
Loss = Callable[[Tensor, Tensor], Tensor]  # logits (batch, classes), labels (batch,) -> ()


@dataclass(frozen=True)
class Classification(Task):
    """Integer labels `(batch,)`, logits `(batch, classes)`; a custom loss `own` replaces cross-entropy.

    `class_weights` weigh the training cross-entropy and scores by loss, by label: a positive number per class, or
    "balanced", which gives all classes equal weight: `images / (classes * images of the class)`, counted on the
    training images, or the validation loader's. Test figures are not weighted.

    Raises:
        RecipeError: weights that are not positive, or combined with a custom loss.
    """

    name: ClassVar[str] = "classification"
    headline: ClassVar[Metric] = Metric(
        "top1", "test top-1", "%", share=True, meaning="the share of images that are classified right"
    )
    soft_labels: ClassVar[bool] = True

    own: Loss | None = field(default=None, repr=False)
    class_weights: Literal["balanced"] | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        weights = self.class_weights
        if weights is None or weights == "balanced":
            given: tuple[float, ...] = ()
        else:
            given = tuple(map(float, weights))
            object.__setattr__(self, "class_weights", given)
        if any(not 0 < weight < math.inf for weight in given):
            raise RecipeError(
                f'class_weights must be positive numbers, one for each class, or "balanced"; got {weights}'
            )
        if weights is not None and self.own is not None:
            raise RecipeError(
                "class_weights are for cross-entropy; got a loss of your own beside: weigh the classes there"
            )

    @property
    def description(self) -> str:
        """Name and class weights; a custom loss is a setting of its own."""
        weights = self.class_weights
        return self.name if weights is None else f"{self.name} {json.dumps({'class_weights': weights})}"

    def with_labels(self, labels: Tensor | None, classes: int) -> Classification:
        """Return the task with numbers for balanced weights.

        Raises:
            RecipeError: the wrong number of weights, or no labels to count.
        """
        weights = self.class_weights
        if weights == "balanced":
            if labels is None:
                raise RecipeError(
                    'class_weights="balanced" needs labels to count; got none: give a number for each class'
                )
            counts = torch.bincount(labels.cpu(), minlength=classes)
            weights = tuple((len(labels) / (classes * counts.clamp(min=1))).tolist())
        if weights is not None and len(weights) != classes:
            raise RecipeError(
                f"class_weights must be one for each of {classes} classes; got {len(weights)}: {list(weights)}"
            )
        return replace(self, class_weights=weights)

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the cross-entropy, or the custom loss."""
        return self.training_loss(outputs, targets)

    def loss_score(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the negative weighted cross-entropy of each image, `(batch,)`."""
        logits = named_logits(outputs).float()
        weights = self._weights(logits.device)
        return -functional.cross_entropy(logits, targets, weight=weights, reduction="none").double()

    def _cross_entropy(self, logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
        weights = self._weights(logits.device)
        if weights is None:
            return functional.cross_entropy(logits, targets, label_smoothing=label_smoothing)
        # Divide by the number of images, not the sum of weights, so that the parts of a batch add up.
        total = functional.cross_entropy(
            logits, targets, weight=weights, reduction="sum", label_smoothing=label_smoothing
        )
        return total / len(targets)

    def _weights(self, device: torch.device) -> Tensor | None:
        assert self.class_weights != "balanced", "`with_labels` comes first"
        return None if self.class_weights is None else _on_device(self.class_weights, device)

    def score(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return 100 for a correctly classified image, otherwise 0."""
        right: Tensor = named_logits(outputs).argmax(dim=1) == targets
        return 100.0 * right.double()

    def figures(self, outputs: Any, targets: Tensor) -> Mapping[str, Tensor]:
        """Return top-1 and top-5 correctness in percent.

        An image with NaN logits counts as wrong.
        """
        logits = named_logits(outputs)
        guesses = logits.topk(min(5, logits.shape[1]), dim=1).indices  # (batch, <= 5)
        right = guesses == targets[:, None]
        broken = logits.isnan().any(dim=1)
        shares = {"top1": right[:, 0], "top5": right.any(dim=1)}
        return {key: (100.0 * hits.double()).masked_fill(broken, torch.nan) for key, hits in shares.items()}

    def classes_of(self, targets: Tensor) -> Tensor:
        """Return the labels."""
        return targets

    def check_targets(self, targets: Any, where: str) -> Tensor:
        """Return class numbers `(batch,)` of any integer type."""
        given = single_tensor(targets, where)
        if given.dtype not in _INTEGERS or given.ndim != 1:
            raise DataError(
                f"the labels of {where} must be class numbers, int of shape ({len(given)},); got {given.dtype} "
                f"{tuple(given.shape)}: {_remedy(given)}"
            )
        return given.long()

    def check(self, outputs: Any, classes: int) -> None:
        """Raise ModelError unless there are logits for all classes."""
        logits = named_logits(outputs)
        if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < classes:
            remedy = "return them alone, or named `logits`, or give a task of your own (task=)"
            if isinstance(logits, Tensor):
                remedy = "change its last layer"
            if isinstance(logits, Tensor) and logits.shape[1:] == (classes - 1,):
                remedy += ", or number the classes from 0 if they begin at 1"
            raise ModelError(
                f"the model must return logits (batch, classes), at least {classes} classes for these data; got "
                f"{shape_of(logits)}: {remedy}"
            )

    def show(
        self, pictures: Tensor | None, targets: Tensor, outputs: Any = None, *, names: Sequence[str] = ()
    ) -> Shown:
        """Return the class; of a network's outputs, with its probability."""
        if outputs is None:
            return Shown(words=tuple(name_of(label, names) for label in targets.tolist()))
        chances, labels = named_logits(outputs).float().softmax(dim=1).max(dim=1)
        found = zip(labels.tolist(), chances.tolist(), strict=True)
        return Shown(words=tuple(f"{name_of(label, names)} ({chance:.0%})" for label, chance in found))

    def main_output(self, outputs: Any) -> Any:
        """Return the logits: by name, or the first of a tuple, whose other parts are auxiliary heads."""
        logits = named_logits(outputs)
        return logits[0] if isinstance(logits, (tuple, list)) and logits else logits

    def training_loss(
        self,
        outputs: Any,
        targets: Tensor,
        *,
        label_smoothing: float = 0.0,
        taught: Any = None,
        distilling: Distilling | None = None,
    ) -> Tensor:
        """Return the cross-entropy with label smoothing and, with a teacher, distillation.

        A custom loss replaces cross-entropy and label smoothing. If the outputs are a tuple, as from networks with
        auxiliary heads in training mode, the first are the logits; the losses of the others are added with weight 0.3
        (Szegedy et al., 2015) and use labels only. If the outputs have named `logits`, names that start with `aux` are
        such heads.

        Raises:
            TrainingError: outputs that are not a matrix of logits with one row per label, or a custom loss that is not
                a scalar.
        """
        logits = self.main_output(outputs)
        loss = self._head_loss(logits, targets, label_smoothing)
        if distilling is not None and taught is not None:
            learnt = distillation_loss(logits, taught, distilling.temperature)
            loss = (1 - distilling.weight) * loss + distilling.weight * learnt
        for head in _auxiliary_heads(outputs):
            if head is not None:
                if getattr(head, "shape", None) != logits.shape:
                    raise TrainingError(
                        f"outputs after the logits {tuple(logits.shape)} must be those of auxiliary heads, of the same "
                        f"shape; got {shape_of(head)}: return logits alone, or define a task (--task)"
                    )
                loss = loss + _AUXILIARY * self._head_loss(head, targets, label_smoothing)
        return loss

    def _head_loss(self, logits: Any, targets: Tensor, label_smoothing: float) -> Tensor:
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(targets):
            raise TrainingError(
                f"the network must return logits (batch, classes), {len(targets)} rows here, alone or first in a tuple "
                f"of those of auxiliary heads; got {shape_of(logits)}"
            )
        if self.own is None:
            return self._cross_entropy(logits.float(), targets, label_smoothing)
        return scalar(self.own(logits.float(), targets))


def _auxiliary_heads(outputs: Any) -> Sequence[Any]:
    """Return all but the first of a tuple; with named logits, the entries `aux...`."""
    if isinstance(outputs, (tuple, list)) and not hasattr(outputs, "logits"):
        return outputs[1:]
    named = outputs if isinstance(outputs, Mapping) else getattr(outputs, "_asdict", dict)()
    return [head for name, head in named.items() if name.startswith("aux")]


def _remedy(targets: Tensor) -> str:
    """Explain what to do with targets that are not class numbers: a matching task, or how to make labels."""
    integers = targets.dtype in _INTEGERS
    count = targets[0].numel() if len(targets) else 1
    masks = f"for masks, set task='segmentation:classes={int(targets.max()) + 1}' (--task)" if integers else ""
    if masks and (targets.ndim == 3 or (targets.ndim in (4, 5) and targets.shape[1] == 1)):
        return masks
    if targets.ndim > 2:
        # Integers (n, a, b, c) may be the masks of volumes or images of several channels.
        return "; ".join(filter(None, (masks, "for images, set task='dense-regression' (--task)")))
    if integers and count == 1:
        return "labels.squeeze(1) has that shape"
    if not ((targets == 0) | (targets == 1)).all():
        return "; ".join(filter(None, (f"for numbers, set task='regression:values={count}' (--task)", masks)))
    zeros_and_ones = f"for zeros and ones, set task='multi-label:labels={count}' (--task)"
    return f"{zeros_and_ones}; labels.argmax(1) converts one-hot rows to class numbers" if count > 1 else zeros_and_ones


@lru_cache(maxsize=16)
def _on_device(weights: tuple[float, ...], device: torch.device) -> Tensor:
    """Return class weights as a tensor, cached for all batches."""
    with torch.inference_mode(False):  # cached beyond the caller's inference mode
        return torch.tensor(weights, device=device)


def distillation_loss(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """Return `tau^2 * KL(teacher || student)` at temperature `tau`, averaged over the batch.

    Both `(batch, classes)`.
    """
    student = functional.log_softmax(logits.float() / temperature, dim=1)
    teacher = functional.log_softmax(teacher_logits.float() / temperature, dim=1)
    # Gradients of softened logits scale with 1 / tau^2, which the factor compensates.
    return functional.kl_div(student, teacher, reduction="batchmean", log_target=True) * temperature**2
