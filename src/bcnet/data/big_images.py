"""Big photographs brought to one size: random resized crops to train on, centre crops to test on.

Crops are resized by torch, on whatever device the images are, which is faster than by Pillow or by torchvision's
transforms (`benchmarks/speed_images.py`). Each image draws from a seed of its own, so that an epoch is the same whoever
decodes it, and in whatever order.
"""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass

import torch

from bcnet.data.decoding import Box, Crop, Middle
from bcnet.data.resizing import Resizing
from bcnet.errors import DataError

_TEST_RATIO = 256 / 224  # the shorter side over the size of the centre crop, as is usual for ImageNet
_MOST_ELONGATED = 4 / 3  # the longer over the shorter side of a random crop
_TRIES = 10  # at a crop that fits into the image
_GREY = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)
_COLOURS = ("brightness", "contrast", "saturation")


@dataclass(frozen=True)
class ResizedCrop:
    """A random part of the image, of `min_area` to all of its area, resized; perhaps flipped and its colours shifted.

    The part is that of Szegedy et al. ("Going deeper with convolutions", 2015), as torchvision's `RandomResizedCrop`
    draws it: an area, uniformly, and a ratio of its sides between 3/4 and 4/3, uniformly in its logarithm.
    `colour_jitter` is the largest relative change of brightness, contrast and saturation, 0 for none; they change in a
    random order.

    Example: `ResizedCrop(min_area=0.08, colour_jitter=0.4)` is the usual one for ImageNet.

    Raises:
        DataError: an area outside (0, 1], a jitter outside [0, 1).
    """

    min_area: float = 0.08
    flip: bool = True
    colour_jitter: float = 0.0

    def __str__(self) -> str:
        flips = ", flips from left to right" if self.flip else ""
        colours = f", colours changed by up to {self.colour_jitter:.0%}" if self.colour_jitter else ""
        return f"crops of {self.min_area:.0%} to all of the area{flips}{colours}"

    def __post_init__(self) -> None:
        for name, value, good in (
            ("min_area", self.min_area, 0 < self.min_area <= 1),
            ("colour_jitter", self.colour_jitter, 0 <= self.colour_jitter < 1),
        ):
            if not good:
                raise DataError(f"{name} of a resized crop is a share of 1; got {value!r}")

    def __call__(
        self, pixels: torch.Tensor, generator: torch.Generator, *, first: int = 0, whole: int | None = None
    ) -> torch.Tensor:
        """Every image of `pixels`, bytes `(n, C, H, W)`, cropped and resized on its own to the same shape.

        Of a batch of `whole` images they may be those from number `first` on: they come out as in the whole batch.
        """
        base = draw_base(generator)
        height, width = pixels.shape[-2:]
        crops = []
        for number, image in enumerate(pixels, first):
            draw = random.Random(image_seed(base, number))
            left, top, right, bottom = self.box(width, height, draw)
            crops.append(self.finish(image[:, top:bottom, left:right], (height, width), draw))
        return torch.stack(crops) if crops else pixels

    def box(self, width: int, height: int, draw: random.Random) -> Box:
        """The part of an image of `width` by `height` pixels that is drawn: left, top, right and bottom."""
        most = math.log(_MOST_ELONGATED)
        for _ in range(_TRIES):
            area = width * height * draw.uniform(self.min_area, 1.0)
            ratio = math.exp(draw.uniform(-most, most))
            across = round(math.sqrt(area * ratio))
            down = round(math.sqrt(area / ratio))
            if 0 < across <= width and 0 < down <= height:
                left = draw.randint(0, width - across)
                top = draw.randint(0, height - down)
                return left, top, left + across, top + down
        # As much of the middle as a crop may have.
        across = min(width, max(1, round(height * _MOST_ELONGATED)))
        down = min(height, max(1, round(width * _MOST_ELONGATED)))
        left = (width - across) // 2
        top = (height - down) // 2
        return left, top, left + across, top + down

    def view(self, width: int, height: int, size: int, draw: random.Random) -> Crop:
        """The part that is drawn of an image in its file, `finished` being to come."""
        return Crop(self.box(width, height, draw), size)

    def finish(self, part: torch.Tensor, size: tuple[int, int], draw: random.Random) -> torch.Tensor:
        """Bytes `(C, h, w)` resized to `size`, height and width, flipped and shifted."""
        # torch resizes bytes on the CPU alone.
        values = part if part.device.type == "cpu" else part.float()
        resized = torch.nn.functional.interpolate(values[None], size, mode="bilinear", antialias=True)[0]
        if self.flip and draw.random() < 0.5:
            resized = resized.flip(2)
        if self.colour_jitter:
            resized = self._shift_color(resized.float(), draw)
        return resized if resized.dtype is torch.uint8 else resized.round_().clamp_(0, 255).to(torch.uint8)

    def _shift_color(self, image: torch.Tensor, draw: random.Random) -> torch.Tensor:
        """Floats from 0 to 255, moved towards black, the mean grey, or their own grey, or away from it."""
        for colour in draw.sample(_COLOURS, len(_COLOURS)):
            factor = draw.uniform(1 - self.colour_jitter, 1 + self.colour_jitter)
            grey = image if len(image) == 1 else sum(w * channel for w, channel in zip(_GREY, image, strict=True))
            if colour == "brightness":
                image = factor * image
            else:
                towards = grey.mean() if colour == "contrast" else grey
                image = factor * image + (1 - factor) * towards
            image = image.clamp(0, 255)
        return image


def middle(width: int, height: int, size: int) -> Middle:
    """Return the part that is kept of a test image."""
    return Middle(width, height, resizing_of_tests(size))


def resizing_of_tests(size: int) -> Resizing:
    """Return what makes test images: the middle of an image whose shorter side is resized to 8/7 of `size`."""
    return Resizing(round(size * _TEST_RATIO), size, "bilinear")


def draw_base(generator: torch.Generator) -> int:
    """A number that the seeds of an epoch's images are derived from."""
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


def image_seed(base: int, index: int) -> int:
    """The seed of the image `index` in the epoch of `base`."""
    return int.from_bytes(hashlib.blake2b(f"{base}:{index}".encode(), digest_size=8).digest()) >> 1
