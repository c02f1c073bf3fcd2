"""Semantic segmentation of images, signals or volumes, by cross-entropy and Dice loss; mean intersection over union.

Notation: `p` is the softmax over classes, `y` one-hot targets. Sums are over a batch's pixels that are not ignored, the
mean over the classes present:

    (1 - d) * CE(z, y) + d * (1 - 2 sum(p y) / (sum(p) + sum(y)))      (Milletari et al., 2016)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from bcnet.errors import DataError, ModelError, RecipeError
from bcnet.measurement import Metric
from bcnet.tasks.base import Task, named_logits, pooled_ratio, shape_of, single_tensor
from bcnet.tasks.shown import Shown, with_masks

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}  # interpolation by the number of dimensions


@dataclass(frozen=True)
class Segmentation(Task):
    """Class numbers `(batch, H, W)`, logits `(batch, classes, h, w)`, which are resized to the targets' size.

    Signals have one dimension in place of H and W, volumes three. Outputs are the logits, an object with `logits`, a
    dict with "out" as from torchvision, or a tuple that starts with them. Pixels of class `ignore` are not counted.
    `dice` is the share of the Dice loss. Widths are ranked by cross-entropy, which separates them better than shares of
    pixels. The test metrics are mean intersection over union, pooled over all images, and pixel accuracy.

    Example: `bcnet.search(unet, (train, validation, test), task=Segmentation(classes=21), budget=..., run_dir=...)`

    Raises:
        RecipeError: a setting out of range.
    """

    name: ClassVar[str] = "segmentation"
    headline: ClassVar[Metric] = Metric(
        "miou", "mIoU", "%", meaning="intersection over union, pooled over the images, the mean over classes"
    )

    classes: int
    ignore: int = 255
    dice: float = 0.0

    def __post_init__(self) -> None:
        if self.classes < 2 or not 0 <= self.dice <= 1 or 0 <= self.ignore < self.classes:
            raise RecipeError(
                "a segmentation must have at least 2 classes, a Dice share in [0, 1], and a class to ignore that is "
                f"none of the others; got {self}"
            )

    @property
    def outputs(self) -> int:
        """Return the number of classes."""
        return self.classes

    def check_targets(self, targets: Any, where: str) -> Tensor:
        """Return masks as int64 if all their classes are valid; `(batch, 1, height, width)` is accepted too."""
        given = single_tensor(targets, where)
        if given.ndim in (4, 5) and given.shape[1] == 1:
            given = given[:, 0]
        if given.ndim not in (2, 3, 4) or given.is_floating_point():
            raise DataError(
                f"the masks of {where} must be class numbers of shape ({len(given)}, height, width), one dimension "
                f"for signals and three for volumes; got {given.dtype} {tuple(given.shape)}: squeeze a dimension of 1, "
                "long() makes integers"
            )
        whole = given.long()
        wrong = ((whole < 0) | (whole >= self.classes)) & (whole != self.ignore)
        if wrong.any():
            number = int(wrong.flatten(1).any(dim=1).nonzero()[0])
            raise DataError(
                f"the masks of {where} must have classes from 0 to {self.classes - 1}, or {self.ignore} for pixels to "
                f"ignore; got {int(whole[wrong][0])} in number {number} of a batch"
            )
        return whole

    def check(self, outputs: Any, classes: int) -> None:
        """Raise ModelError unless there are logits for all classes at every position."""
        found = logits_of(outputs)
        if found is None or found.ndim < 3 or found.shape[1] != self.classes:
            got = shape_of(outputs if found is None else found)
            raise ModelError(
                f"the model must return logits (batch, {self.classes}, height, width) for a segmentation of "
                f"{self.classes} classes; got {got}: change its last layer"
            )

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the cross-entropy over all pixels, mixed with the Dice loss."""
        logits = self._at_full_size(outputs, targets)
        loss = functional.cross_entropy(logits, targets, ignore_index=self.ignore, reduction="sum")
        counted = (targets != self.ignore).sum().clamp(min=1)
        return (1 - self.dice) * loss / counted + (self.dice * self._dice(logits, targets) if self.dice else 0.0)

    def score(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the negative cross-entropy of each image."""
        logits = self._at_full_size(outputs, targets)
        pixels = functional.cross_entropy(logits, targets, ignore_index=self.ignore, reduction="none")
        counted = (targets != self.ignore).flatten(1).sum(dim=1).clamp(min=1)
        return -pixels.flatten(1).sum(dim=1) / counted

    def figures(self, outputs: Any, targets: Tensor) -> Mapping[str, Tensor]:
        """Return intersection and union by class, `(batch, classes, 2)`, and correct and counted pixels, per image."""
        counted = targets != self.ignore
        guesses = self._at_full_size(outputs, targets).argmax(dim=1)
        broken = logits_of(outputs).isnan().flatten(1).any(dim=1)  # type: ignore[union-attr]
        numbers = torch.arange(self.classes, device=targets.device)[:, None]
        guesses, targets, counted = (part.flatten(1) for part in (guesses, targets, counted))  # (batch, positions)
        guessed, wanted = ((part[:, None] == numbers) & counted[:, None] for part in (guesses, targets))
        both, either = (part.sum(dim=2).double() for part in (guessed & wanted, guessed | wanted))
        right = ((guesses == targets) & counted).sum(dim=1).double()
        figures = {
            "miou": torch.stack([both, either], dim=-1),
            "pixels": torch.stack([right, counted.sum(dim=1).double()], dim=-1)[:, None],
        }
        return {key: values.masked_fill(broken[:, None, None], torch.nan) for key, values in figures.items()}

    def summarize(self, figures: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Return ratios over all pixels in percent; errors are the jackknife's over images."""
        pooled = {key: pooled_ratio(counts) for key, counts in figures.items()}
        return {key: 100 * v for key, (v, _) in pooled.items()}, {key: 100 * e for key, (_, e) in pooled.items()}

    def show(
        self, pictures: Tensor | None, targets: Tensor, outputs: Any = None, *, names: Sequence[str] = ()
    ) -> Shown:
        """Return the picture with a colour per class; of a network's outputs, with the pixel accuracy."""
        if outputs is None:
            return Shown(
                None if pictures is None else with_masks(pictures, targets, (self.ignore, self._common(targets)))
            )
        found = self._at_full_size(outputs, targets).argmax(dim=1)
        counted = targets != self.ignore
        right = ((found == targets) & counted).flatten(1).sum(dim=1) / counted.flatten(1).sum(dim=1).clamp(min=1)
        words = tuple(f"{share:.1%} of pixels" for share in right.tolist())
        return Shown(None if pictures is None else with_masks(pictures, found, (self._common(targets),)), words)

    def _common(self, targets: Tensor) -> int:
        """Return the most frequent class, usually the background, which is left without a colour."""
        counted = targets[targets != self.ignore]
        return int(counted.flatten().mode().values) if counted.numel() else 0

    def _at_full_size(self, outputs: Any, targets: Tensor) -> Tensor:
        logits = logits_of(outputs)
        assert logits is not None
        size = tuple(targets.shape[1:])
        given = tuple(logits.shape[2:])
        if given == size:
            return logits.float()
        if len(given) != len(size) or not _of_one_shape(given, size):
            raise DataError(
                "masks must be of the shape of their images, whose positions the network gives logits for; got masks "
                f"of {' x '.join(map(str, size))} and logits at {' x '.join(map(str, given))}: crop, pad and resize "
                "masks as their images"
            )
        return functional.interpolate(logits.float(), size=size, mode=_LINEAR[len(size)], align_corners=False)

    def _dice(self, logits: Tensor, targets: Tensor) -> Tensor:
        counted = (targets != self.ignore)[:, None]
        shares = logits.softmax(dim=1) * counted
        wanted = functional.one_hot(targets.where(counted[:, 0], 0), self.classes).movedim(-1, 1) * counted
        parts = (shares * wanted, shares, wanted)  # (batch, classes, *size)
        both, guessed, there = (part.transpose(0, 1).flatten(1).sum(dim=1) for part in parts)
        sizes = guessed + there
        if not there.any():
            return logits.sum() * 0
        return 1 - (2 * both / sizes.clamp(min=1e-6))[there > 0].mean()


def _of_one_shape(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return whether one stride leads from the `wanted` to the `given` size, each side rounded up or down."""
    strides = [
        (full / (part + 1), full / (part - 1) if part > 1 else math.inf)
        for part, full in zip(given, wanted, strict=True)
    ]
    return max(low for low, _ in strides) < min(high for _, high in strides)


def logits_of(outputs: Any) -> Tensor | None:
    """Return the logits among a network's outputs: `logits` by name, "out" of a dict, the first of a tuple, or None."""
    outputs = named_logits(outputs)
    if isinstance(outputs, Mapping):
        outputs = outputs.get("out")
    elif isinstance(outputs, (tuple, list)) and outputs:
        outputs = outputs[0]
    return outputs if isinstance(outputs, Tensor) else None
