"""How big photographs are brought to one size: random resized crops to train on, centre crops to test on.

The transforms are torchvision's, imported when first used: small images do without. Each image draws from a seed of its
own, so that an epoch is the same whoever decodes it, and in whatever order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import torch
from PIL import Image

from bcnet.errors import DataError

_TEST_RATIO = 256 / 224  # the shorter side over the size of the centre crop, as is usual for ImageNet


@dataclass(frozen=True)
class ResizedCrop:
    """A random part of the image, of `min_area` to all of its area, resized; perhaps flipped and its colours shifted.

    `colour_jitter` is the largest relative change of brightness, contrast and saturation, 0 for none.

    Example: `ResizedCrop(min_area=0.08, colour_jitter=0.4)` is the usual one for ImageNet.

    Raises:
        DataError: an area outside (0, 1], a jitter outside [0, 1), or torchvision is missing.
    """

    min_area: float = 0.08
    flip: bool = True
    colour_jitter: float = 0.0

    def __post_init__(self) -> None:
        for name, value, good in (
            ("min_area", self.min_area, 0 < self.min_area <= 1),
            ("colour_jitter", self.colour_jitter, 0 <= self.colour_jitter < 1),
        ):
            if not good:
                raise DataError(f"{name} of a resized crop is a share of 1; got {value!r}")
        _transforms()

    def __call__(
        self, pixels: torch.Tensor, generator: torch.Generator, *, first: int = 0, whole: int | None = None
    ) -> torch.Tensor:
        """Every image of `pixels`, bytes `(n, C, H, W)`, cropped and resized on its own to the same shape.

        Of a batch of `whole` images they may be those from number `first` on: they come out as in the whole batch.
        """
        base = draw_base(generator)
        crops = [self.one(image, pixels.shape[-1], image_seed(base, i)) for i, image in enumerate(pixels, first)]
        return torch.stack(crops) if crops else pixels

    def one(self, image: Any, size: int, seed: int) -> torch.Tensor:
        """One image, of PIL's or bytes `(C, H, W)`, as bytes `(C, size, size)`; all draws come from `seed`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            crop: torch.Tensor = _training(self, size)(image)
        return crop


def centre_crop(image: Image.Image, size: int) -> torch.Tensor:
    """The middle of an image of PIL's as bytes `(C, size, size)`, its shorter side first resized to 8/7 of `size`."""
    crop: torch.Tensor = _testing(size)(image)
    return crop


def draw_base(generator: torch.Generator) -> int:
    """A number that the seeds of an epoch's images are derived from."""
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


def image_seed(base: int, index: int) -> int:
    """The seed of the image `index` in the epoch of `base`."""
    return int.from_bytes(hashlib.blake2b(f"{base}:{index}".encode(), digest_size=8).digest()) >> 1


@cache
def _training(crop: ResizedCrop, size: int) -> Any:
    v2 = _transforms()
    steps = [v2.RandomResizedCrop(size, scale=(crop.min_area, 1.0), antialias=True)]
    if crop.flip:
        steps.append(v2.RandomHorizontalFlip())
    if crop.colour_jitter:
        steps.append(v2.ColorJitter(crop.colour_jitter, crop.colour_jitter, crop.colour_jitter))
    return v2.Compose([*steps, v2.ToImage(), v2.ToPureTensor()])


@cache
def _testing(size: int) -> Any:
    v2 = _transforms()
    steps = [v2.Resize(round(size * _TEST_RATIO), antialias=True), v2.CenterCrop(size)]
    return v2.Compose([*steps, v2.ToImage(), v2.ToPureTensor()])


@cache
def _transforms() -> ModuleType:
    try:
        from torchvision.transforms import v2
    except Exception as error:  # a build that does not match torch raises RuntimeError, not ImportError
        raise DataError(
            f"big images are cropped by the package torchvision; importing it failed with {type(error).__name__}: "
            f"{error}: run `pip install torchvision`, in the build that fits your torch, or set another augmentation "
            "(--set augmentation.kind=crop)"
        ) from error
    return v2  # type: ignore[no-any-return]
