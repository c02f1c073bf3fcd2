"""Decode images (PNG, JPEG, ...) to uint8 tensors, whole or cropped."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import ExifTags, Image, ImageOps

from bcnet.data.resizing import Resizing
from bcnet.errors import DataError

# Pure image formats. PIL supports others, some of which start programs (EPS runs Ghostscript).
FORMATS = ("PNG", "JPEG", "JPEG2000", "GIF", "BMP", "WEBP", "TIFF", "PPM")
Bytes = npt.NDArray[np.uint8]
Labelled = tuple[torch.Tensor, torch.Tensor]  # pixels (n, C, H, W) and labels (n,)
_ORIENTATION = ExifTags.Base.Orientation
_DEEP = ";16"  # marks raw modes of decoders
_SPARE = 2.0  # a JPEG is decoded at a fraction that keeps this many times the requested pixels


class View(Protocol):
    """A requested part of an image.

    `scale` is the ratio of requested to original pixels, horizontally and vertically.
    """

    @property
    def scale(self) -> tuple[float, float]:
        """Requested pixels per pixel of the image; below 1 it may be decoded at a fraction of its size."""
        ...

    def of(self, image: Image.Image, shrunk: float) -> Image.Image:
        """Return the part, given the image decoded smaller by the factor `shrunk`."""
        ...


Box = tuple[int, int, int, int]  # left, top, right and bottom
ViewOf = Callable[[int, int], View]  # function of an image's width and height


@dataclass(frozen=True)
class Crop:
    """The part `box` of the image, to be resized to `size` by `size` pixels later."""

    box: Box
    size: int

    @property
    def scale(self) -> tuple[float, float]:
        """Requested pixels per pixel of the box, horizontally and vertically."""
        left, top, right, bottom = self.box
        return self.size / (right - left), self.size / (bottom - top)

    def of(self, image: Image.Image, shrunk: float = 1.0) -> Image.Image:
        """Return the part."""
        left, top, right, bottom = (round(side / shrunk) for side in self.box)
        return image.crop((left, top, right, bottom))


@dataclass(frozen=True)
class Middle:
    """The part that `resizing` keeps of an image of `width` by `height`."""

    width: int
    height: int
    resizing: Resizing

    @property
    def scale(self) -> tuple[float, float]:
        """One scale for both sides."""
        scale = self.resizing.shorter / min(self.width, self.height)
        return scale, scale

    def of(self, image: Image.Image, shrunk: float = 1.0) -> Image.Image:
        """Return the image resized, then cropped."""
        size = self.resizing.size
        height, width = self.resizing.scaled_size(self.height, self.width)
        if image.size != (width, height):
            image = image.resize((width, height), Image.Resampling[self.resizing.filter.upper()])
        if (width, height) == (size, size):
            return image
        top, left = self.resizing.corner(height, width)
        return image.crop((left, top, left + size, top + size))


def decode_all(images: Iterable[tuple[str, bytes | Path]], image_size: int | None) -> torch.Tensor:
    """Return pixels, uint8 `(n, C, H, W)`, of `(name, encoded image or its path)` pairs; names are for messages.

    The result is grey (C = 1) if all images are, otherwise colour (C = 3). With an `image_size`, the shorter side is
    resized to it (bicubic) and the centre square kept.

    Raises:
        DataError: an image is unreadable or has more than 8 bits, sizes differ without `image_size`, or there is none.
    """
    view = None if image_size is None else _fit_to(image_size)
    return stack((name, decode(name, source, view)) for name, source in images)


def decode(name: str, source: bytes | Path, view: ViewOf | None = None) -> Image.Image:
    """Return one image, in mode L (grey) or RGB, or the requested view of it.

    Raises:
        DataError: it is unreadable or has more than 8 bits.
    """
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            if _DEEP in str(getattr(image, "tile", "")):  # only known before decoding
                raise DataError(
                    f"images must have 8 bits for each channel; {name} has 16: convert it, scaling its values"
                )
            if image.getexif().get(_ORIENTATION, 1) != 1:  # rotated, as phones store upright photos
                upright = ImageOps.exif_transpose(image)
                whole = eight_bits(name, upright)
                return whole if view is None else view(*upright.size).of(whole, 1.0)
            if view is None:
                return eight_bits(name, image)
            wanted = view(*image.size)
            shrunk = _shrunk(image, wanted)
            return wanted.of(eight_bits(name, image), shrunk)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # a corrupt file makes PIL's decoders raise errors of any type
        raise DataError(
            f"images must be {', '.join(FORMATS[:-1])} or {FORMATS[-1]} files, whole ones; {name} is not: {error}"
        ) from error


def eight_bits(name: str, image: Image.Image) -> Image.Image:
    """Return the image in mode L if it is grey, otherwise RGB.

    Raises:
        DataError: it has more than 8 bits per channel.
    """
    if image.mode[0] in "IF":
        raise DataError(
            f"images must have 8 bits for each channel; {name} has mode {image.mode!r}: convert it, scaling its values"
        )
    if image.mode in ("P", "PA", "LA", "La", "RGBa") and (image.mode != "P" or "transparency" in image.info):
        image = image.convert("RGBA")  # PIL warns about direct conversion to RGB
    if image.mode == "RGBA":
        if np.asarray(image.getchannel("A")).min() < 255:  # transparent pixels become white
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        image = image.convert("RGB")
    return image.convert("L" if image.mode in ("L", "1") else "RGB")


def fit(image: Image.Image, image_size: int) -> Image.Image:
    """Resize the shorter side to `image_size` (bicubic) and keep the centre square."""
    return _fit_to(image_size)(*image.size).of(image)


def resizing_to(image_size: int) -> Resizing:
    """Return the resizing that `fit` does."""
    return Resizing(image_size, image_size, "bicubic")


def _fit_to(image_size: int) -> Callable[[int, int], Middle]:
    return lambda width, height: Middle(width, height, resizing_to(image_size))


def bytes_of(image: Image.Image) -> torch.Tensor:
    """Return bytes `(C, H, W)` of an image with one or three channels."""
    array = np.array(image)  # a copy, since torch needs writable memory
    return torch.from_numpy(array.reshape(*array.shape[:2], -1)).permute(2, 0, 1)


def _shrunk(image: Image.Image, view: View) -> float:
    """Decode an unread image at a fraction of its size if that suffices; return the factor.

    JPEGs hold blocks of 8 x 8 frequencies; at a half, a quarter or an eighth of the size only the low ones are needed.
    With twice the requested pixels the resized result looks the same (Pillow's documentation of `reducing_gap`). Images
    in other formats are decoded in full.
    """
    width, height = image.size
    across, down = view.scale
    wanted = math.ceil(_SPARE * across * width), math.ceil(_SPARE * down * height)
    drafted = image.draft(image.mode, wanted)
    return 1.0 if drafted is None else width / drafted[1][2]


def stack(images: Iterable[tuple[str, Image.Image]]) -> torch.Tensor:
    """Stack `(name, image)` pairs of one size into a tensor `(n, C, H, W)`.

    Raises:
        DataError: images of different sizes, or none.
    """
    pixels = bytearray()  # grows in place, so that no image is in memory twice
    channels = height = width = 0
    for name, image in images:
        array = np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)
        if not channels:
            channels, height, width = array.shape
        if array.shape[1:] != (height, width):
            raise DataError(
                f"images must have one size; got {width}x{height} and, for {name}, {array.shape[2]}x{array.shape[1]}: "
                "give image_size (--image-size)"
            )
        if len(array) > channels:  # the first colour image
            grey = np.frombuffer(pixels, np.uint8).reshape(-1, 1, height, width)
            pixels = bytearray(np.repeat(grey, len(array), axis=1))
            channels = len(array)
        pixels += np.broadcast_to(array, (channels, height, width)).tobytes()
    if not channels:
        raise DataError("a set of images must hold at least one; got none: check the split it comes from")
    return torch.frombuffer(pixels, dtype=torch.uint8).reshape(-1, channels, height, width)
