"""Regression: one or several numbers per image, or an image per image (denoising, super-resolution, depth).

Notation: `y` targets, `z` outputs, `P` the peak, the largest possible pixel value:

    PSNR = 10 log10(P^2 / mean((z - y)^2))      in decibels, per image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bcnet.errors import DataError, ModelError, RecipeError
from bcnet.measurement import Metric
from bcnet.tasks.base import Task, named_logits, shape_of, single_tensor
from bcnet.tasks.shown import Shown, list_words, picture_of

_LEAST_ERROR = 1e-10  # smallest squared error, which limits PSNR to 100 dB for a peak of 1


@dataclass(frozen=True)
class Regression(Task):
    """Numbers `(batch, values)` as targets and outputs, `(batch,)` for one; squared-error loss, mean absolute error."""

    name: ClassVar[str] = "regression"
    headline: ClassVar[Metric] = Metric(
        "mae", "mean absolute error", digits=4, higher=False, meaning="the mean over images and values"
    )

    values: int = 1

    def __post_init__(self) -> None:
        if self.values < 1:
            raise RecipeError(f"values of a regression must be at least 1 for each image; got {self.values}")

    @property
    def outputs(self) -> int:
        """Return the number of values."""
        return self.values

    def check_targets(self, targets: Any, where: str) -> Tensor:
        """Return numbers as float32 `(batch, values)` if all are finite."""
        given = single_tensor(targets, where)
        rows = given.float().reshape(len(given), -1)
        if rows.shape[1] != self.values:
            raise DataError(
                f"the targets of {where} must be {self.values} numbers for each of its {len(given)} images; got "
                f"{given.dtype} {tuple(given.shape)}"
            )
        found: Tensor = super().check_targets(rows, where)
        return found

    def check(self, outputs: Any, classes: int) -> None:
        """Raise ModelError unless there are as many outputs as targets."""
        numbers = named_logits(outputs)
        alone = isinstance(numbers, Tensor) and numbers.ndim == 1 and self.values == 1
        if not alone and (not isinstance(numbers, Tensor) or numbers.shape[1:] != (self.values,)):
            raise ModelError(
                f"the model must return numbers (batch, {self.values}) for this regression; got "
                f"{shape_of(numbers)}: change its last layer"
            )

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the mean squared error."""
        return self._errors(outputs, targets).square().mean()

    def score(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the negative squared error of each image."""
        return -self._errors(outputs, targets).square().mean(dim=1)

    def figures(self, outputs: Any, targets: Tensor) -> Mapping[str, Tensor]:
        """Return absolute and squared errors."""
        off = self._errors(outputs, targets)
        return {"mae": off.abs().mean(dim=1), "mse": off.square().mean(dim=1)}

    def show(
        self, pictures: Tensor | None, targets: Tensor, outputs: Any = None, *, names: Sequence[str] = ()
    ) -> Shown:
        """Return the numbers as text."""
        rows = (targets if outputs is None else named_logits(outputs)).float().reshape(len(targets), -1)
        return Shown(words=tuple(list_words([f"{value:.4g}" for value in row]) for row in rows.tolist()))

    @staticmethod
    def _errors(outputs: Any, targets: Tensor) -> Tensor:
        """Return the errors `(batch, values)`; numbers `(batch,)` would otherwise broadcast against `(batch, 1)`."""
        numbers: Tensor = named_logits(outputs).float()
        return numbers.reshape(len(numbers), -1) - targets.reshape(len(numbers), -1)


@dataclass(frozen=True)
class DenseRegression(Task):
    """Images `(batch, channels, H, W)` as targets: the loss is the mean absolute error, the metric PSNR.

    Signals have one dimension in place of H and W, volumes three.

    `peak` is the largest possible pixel value, 1 for images in [0, 1].

    Raises:
        RecipeError: the peak is not a positive number.
    """

    name: ClassVar[str] = "dense regression"
    headline: ClassVar[Metric] = Metric("psnr", "PSNR", "dB", meaning="the mean over images of peak signal over noise")

    peak: float = 1.0

    def __post_init__(self) -> None:
        if not self.peak > 0:
            raise RecipeError(f"the peak of a dense regression must be a positive number; got {self.peak}")

    def check_targets(self, targets: Any, where: str) -> Tensor:
        """Return images as float32 if all values are finite."""
        given = single_tensor(targets, where)
        if given.ndim < 3:
            raise DataError(
                f"the targets of {where} must be images ({len(given)}, channels, height, width); got "
                f"{tuple(given.shape)}"
            )
        found: Tensor = super().check_targets(given.float(), where)
        return found

    def check(self, outputs: Any, classes: int) -> None:
        """Raise ModelError unless the outputs are images."""
        if not isinstance(outputs, Tensor) or outputs.ndim < 3:
            raise ModelError(f"the model must return images (batch, channels, height, width); got {shape_of(outputs)}")

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the mean absolute error.

        Raises:
            ModelError: outputs of another size than the targets.
        """
        return (self._check_size(outputs, targets) - targets).abs().mean()

    def score(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the PSNR of each image."""
        square = (self._check_size(outputs, targets) - targets).double().square().flatten(1).mean(dim=1)
        return 10 * torch.log10(self.peak**2 / square.clamp(min=_LEAST_ERROR))

    def figures(self, outputs: Any, targets: Tensor) -> Mapping[str, Tensor]:
        """Return PSNR and mean absolute error."""
        off = self._check_size(outputs, targets) - targets
        return {"psnr": self.score(outputs, targets), "mae": off.abs().flatten(1).mean(dim=1)}

    def show(
        self, pictures: Tensor | None, targets: Tensor, outputs: Any = None, *, names: Sequence[str] = ()
    ) -> Shown:
        """Return the images, scaled to the targets' range; a network's outputs with their PSNR."""
        low = float(targets.min())
        high = float(targets.max())
        if outputs is None:
            return Shown(picture_of(targets, low, high))
        words = tuple(self.headline.text(value) for value in self.score(outputs, targets).tolist())
        return Shown(picture_of(outputs, low, high), words)

    @staticmethod
    def _check_size(outputs: Tensor, targets: Tensor) -> Tensor:
        if outputs.shape != targets.shape:
            remedy = "change its last layer, or resize the targets"
            if outputs.ndim == targets.ndim + 1:
                remedy = "give targets a dimension of channels (target[None])"
            raise ModelError(
                f"the network's images must be of the size of the targets, {tuple(targets.shape[1:])}; got "
                f"{tuple(outputs.shape[1:])}: {remedy}"
            )
        return outputs.float()
