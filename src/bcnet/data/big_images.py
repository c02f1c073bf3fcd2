"""Large photographs at one size: random resized crops for training, centre crops for testing.

Crops are resized by torch, on the images' device, which is faster than Pillow or torchvision's transforms
(`benchmarks/speed_images.py`). Each image draws from its own seed, so an epoch does not depend on who decodes it, or in
which order.
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

_TEST_RATIO = 256 / 224  # shorter side over size of the centre crop, as usual for ImageNet
_MOST_ELONGATED = 4 / 3  # longest side ratio of a random crop
_TRIES = 10  # attempts to find a crop within the image
_GREY = (0.299, 0.587, 0.114)  # weights of red, green and blue (ITU-R BT.601)
_COLOURS = ("brightness", "contrast", "saturation")


@dataclass(frozen=True)
class ResizedCrop:
    """A random part of the image, `min_area` to all of its area, resized, with optional flips and colour jitter.

    The part is that of Szegedy et al. ("Going deeper with convolutions", 2015), drawn like torchvision's
    `RandomResizedCrop`: a uniform area, and a side ratio between 3/4 and 4/3, uniform in its logarithm. `colour_jitter`
    is the largest relative change of brightness, contrast and saturation, in random order; 0 disables it.

    Example: `ResizedCrop(min_area=0.08, colour_jitter=0.4)` is the usual choice for ImageNet.

    Raises:
        DataError: an area outside (0, 1], or a jitter outside [0, 1).
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
                raise DataError(f"{name} of a resized crop must be a share of 1; got {value!r}")

    def __call__(
        self, pixels: torch.Tensor, generator: torch.Generator, *, first: int = 0, whole: int | None = None
    ) -> torch.Tensor:
        """Return `pixels`, bytes `(n, C, H, W)`, with every image cropped independently and resized to the same shape.

        For a part of a batch of `whole` images, `first` is the index of its first image; the result equals that part of
        the whole result.
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
        """Draw the part of an image of `width` by `height` pixels: left, top, right and bottom."""
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
        # the largest centre crop with a valid ratio
        across = min(width, max(1, round(height * _MOST_ELONGATED)))
        down = min(height, max(1, round(width * _MOST_ELONGATED)))
        left = (width - across) // 2
        top = (height - down) // 2
        return left, top, left + across, top + down

    def view(self, width: int, height: int, size: int, draw: random.Random) -> Crop:
        """Draw the part of an image in its file; `finish` does the rest."""
        return Crop(self.box(width, height, draw), size)

    def finish(self, part: torch.Tensor, size: tuple[int, int], draw: random.Random) -> torch.Tensor:
        """Return bytes `(C, h, w)` resized to `size` (height, width), flipped and with changed colours."""
        # torch resizes bytes on the CPU only
        values = part if part.device.type == "cpu" else part.float()
        resized = torch.nn.functional.interpolate(values[None], size, mode="bilinear", antialias=True)[0]
        if self.flip and draw.random() < 0.5:
            resized = resized.flip(2)
        if self.colour_jitter:
            resized = self._shift_color(resized.float(), draw)
        return resized if resized.dtype is torch.uint8 else resized.round_().clamp_(0, 255).to(torch.uint8)

    def _shift_color(self, image: torch.Tensor, draw: random.Random) -> torch.Tensor:
        """Move floats from 0 to 255 towards or away from black, the mean grey, or each pixel's grey."""
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
    """Return the part of a test image that is kept."""
    return Middle(width, height, resizing_of_tests(size))


def resizing_of_tests(size: int) -> Resizing:
    """Return the resizing of test images: the shorter side to 8/7 of `size`, then a centre crop."""
    return Resizing(round(size * _TEST_RATIO), size, "bilinear")


def draw_base(generator: torch.Generator) -> int:
    """Draw a number from which the seeds of an epoch's images are derived."""
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


def image_seed(base: int, index: int) -> int:
    """Return the seed of the image `index` in the epoch of `base`."""
    return int.from_bytes(hashlib.blake2b(f"{base}:{index}".encode(), digest_size=8).digest()) >> 1
