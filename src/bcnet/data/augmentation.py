"""Augmentation of whole batches on their device: random crops of the padded image, and horizontal flips."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bcnet.data.transfer import move
from bcnet.errors import DataError


@dataclass(frozen=True)
class Augmentation:
    """Random crops after zero padding of `padding` pixels on every side, and random flips if `flip`.

    Example: `Augmentation(padding=4, flip=True)` is the usual choice for CIFAR-10: a 32x32 crop of 40x40 pixels.

    Raises:
        DataError: the padding is not a non-negative int.
    """

    padding: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.padding, bool) or not isinstance(self.padding, int) or self.padding < 0:
            raise DataError(f"the padding of an augmentation must be an int of at least 0; got {self.padding!r}")

    def __str__(self) -> str:
        parts = [f"crops of {self.padding} px"] if self.padding else []
        return " and ".join([*parts, *(["flips from left to right"] if self.flip else [])]) or "none"

    def __call__(
        self, pixels: torch.Tensor, generator: torch.Generator, *, first: int = 0, whole: int | None = None
    ) -> torch.Tensor:
        """Return `pixels`, shape `(n, C, H, W)`, with every image cropped and flipped independently.

        Draws come from `generator`, regardless of the device. For a part of a batch of `whole` images, `first` is the
        index of its first image; the result equals that part of the augmented batch.
        """
        if not self.padding and not self.flip:
            return pixels
        count, _, height, width = pixels.shape
        whole = count if whole is None else whole
        mine = slice(first, first + count)
        moves = _draw(2 * self.padding + 1, (2, whole, 1), generator)[:, mine]  # of rows, of columns
        moves = move(moves, pixels.device)
        rows = moves[0] + torch.arange(height, device=pixels.device)  # (n, H)
        columns = torch.arange(width, device=pixels.device).expand(count, width)
        if self.flip:
            flipped = move(_draw(2, (whole, 1), generator)[mine], pixels.device).bool()
            columns = torch.where(flipped, columns.flip(1), columns)
        columns = columns + moves[1]  # (n, W)
        padded = torch.nn.functional.pad(pixels, (self.padding,) * 4)
        batch = torch.arange(count, device=pixels.device)
        cropped = padded[batch[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # (n, H, W, C)
        return cropped.permute(0, 3, 1, 2)


def _draw(high: int, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randint(high, shape, generator=generator, device=generator.device)


def usual_augmentation(image_shape: tuple[int, int, int]) -> Augmentation:
    """Return crops padded by an eighth of the size (4 pixels at 32, 1 at 8), and flips for colour images.

    Grey images are often digits and letters, whose meaning a flip changes.
    """
    channels, height, width = image_shape
    return Augmentation(padding=min(height, width) // 8, flip=channels == 3)
