"""Multi-label classification: any number of labels per image, binary cross-entropy, F1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from bcnet.errors import DataError, ModelError, RecipeError
from bcnet.measurement import Metric
from bcnet.tasks.base import Task, named_logits, pooled_ratio, shape_of, single_tensor
from bcnet.tasks.shown import Shown, list_words, name_of


@dataclass(frozen=True)
class MultiLabel(Task):
    """Zeros and ones `(batch, labels)`, logits of the same shape; a label is predicted if its logit is positive.

    Widths are ranked by cross-entropy. The test metric is F1, pooled over images and averaged over labels.

    Raises:
        RecipeError: fewer than 1 label.
    """

    name: ClassVar[str] = "multi-label classification"
    headline: ClassVar[Metric] = Metric(
        "f1", "F1", "%", meaning="F1 of each label, pooled over the images, the mean over labels"
    )

    labels: int

    def __post_init__(self) -> None:
        if self.labels < 1:
            raise RecipeError(f"labels of a multi-label classification must be at least 1; got {self.labels}")

    @property
    def outputs(self) -> int:
        """Return the number of labels."""
        return self.labels

    def check_targets(self, targets: Any, where: str) -> Tensor:
        """Return zeros and ones as float32; `(batch,)` is accepted for one label."""
        given = single_tensor(targets, where)
        if given.ndim == self.labels == 1:
            given = given[:, None]
        values = given.float()
        fits = given.shape[1:] == (self.labels,)
        if not fits or not ((values == 0) | (values == 1)).all():
            raise DataError(
                f"the targets of {where} must be zeros and ones of shape ({len(given)}, {self.labels}); got "
                f"{given.dtype} {tuple(given.shape)}{' with other values' if fits else ''}"
            )
        return values

    def check(self, outputs: Any, classes: int) -> None:
        """Raise ModelError unless there is a logit for each label."""
        logits = named_logits(outputs)
        if not isinstance(logits, Tensor) or logits.shape[1:] != (self.labels,):
            raise ModelError(
                f"the model must return logits (batch, {self.labels}), one for each label; got "
                f"{shape_of(logits)}: change its last layer"
            )

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the binary cross-entropy, averaged over images and labels."""
        return functional.binary_cross_entropy_with_logits(named_logits(outputs).float(), targets)

    def score(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the negative cross-entropy of each image."""
        logits = named_logits(outputs).float()
        return -functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=1)

    def figures(self, outputs: Any, targets: Tensor) -> Mapping[str, Tensor]:
        """Return F1's numerators and denominators, `(batch, labels, 2)`, and the share of correct labels per image."""
        logits = named_logits(outputs)
        given = logits > 0
        wanted = targets > 0
        broken = logits.isnan().any(dim=1)
        twice = 2 * (given & wanted).double()
        counts = torch.stack([twice, given.double() + wanted.double()], dim=-1)
        right = 100.0 * (given == wanted).double().mean(dim=1)
        return {
            "f1": counts.masked_fill(broken[:, None, None], torch.nan),
            "labels": right.masked_fill(broken, torch.nan),
        }

    def show(
        self, pictures: Tensor | None, targets: Tensor, outputs: Any = None, *, names: Sequence[str] = ()
    ) -> Shown:
        """Return the labels that are set."""
        there = targets if outputs is None else named_logits(outputs)
        return Shown(
            words=tuple(list_words([name_of(n, names) for n in row.nonzero()[:, 0].tolist()]) for row in there > 0)
        )

    def summarize(self, figures: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Return F1 in percent with the jackknife's error, and means of the other figures."""
        value, error = pooled_ratio(figures["f1"])
        means, errors = super().summarize({key: values for key, values in figures.items() if key != "f1"})
        return {**means, "f1": 100 * value}, {**errors, "f1": 100 * error}
