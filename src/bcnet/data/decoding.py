"""Encoded images (PNG, JPEG, ...) to one uint8 tensor."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from bcnet.errors import DataError

# Formats that are pictures and nothing else. PIL knows others, some of which start programs (EPS runs Ghostscript).
FORMATS = ("PNG", "JPEG", "JPEG2000", "GIF", "BMP", "WEBP", "TIFF", "PPM")
Bytes = npt.NDArray[np.uint8]
Labelled = tuple[torch.Tensor, torch.Tensor]  # pixels (n, C, H, W) and labels (n,)


def decode_all(images: Iterable[tuple[str, bytes | Path]], image_size: int | None) -> torch.Tensor:
    """Pixels, uint8 `(n, C, H, W)`, of `(name, encoded image or its path)` pairs; the names are for messages.

    The result is grey (C = 1) if all images are, and else colour (C = 3). Given an `image_size`, the shorter side is
    resized to it (bicubic) and the centre square kept.

    Raises:
        DataError: an image that cannot be read or has more than 8 bits, different sizes without `image_size`, or none.
    """
    decoded = ((name, decode(name, source)) for name, source in images)
    return stack((name, image if image_size is None else fit(image, image_size)) for name, image in decoded)


def decode(name: str, source: bytes | Path) -> Image.Image:
    """One image, in mode L (grey) or RGB.

    Raises:
        DataError: it cannot be read, or has more than 8 bits.
    """
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            return eight_bits(name, image)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # a damaged file makes PIL's decoders raise whatever they stumble over
        raise DataError(
            f"images are {', '.join(FORMATS[:-1])} or {FORMATS[-1]} files, whole ones; {name} is not: {error}"
        ) from error


def eight_bits(name: str, image: Image.Image) -> Image.Image:
    """The image in mode L if it is grey, and else RGB.

    Raises:
        DataError: it has more than 8 bits for each channel.
    """
    if image.mode[0] in "IF":
        raise DataError(
            f"images have 8 bits for each channel; {name} has mode {image.mode!r}: convert it, scaling its values"
        )
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # PIL warns of the direct way to RGB
    return image.convert("L" if image.mode in ("L", "1") else "RGB")


def fit(image: Image.Image, image_size: int) -> Image.Image:
    """The shorter side resized to `image_size` (bicubic), the centre square kept."""
    width, height = image.size
    if min(width, height) != image_size:
        scale = image_size / min(width, height)
        width = max(image_size, round(width * scale))
        height = max(image_size, round(height * scale))
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    if (width, height) == (image_size, image_size):
        return image
    left = (width - image_size) // 2
    top = (height - image_size) // 2
    return image.crop((left, top, left + image_size, top + image_size))


def stack(images: Iterable[tuple[str, Image.Image]]) -> torch.Tensor:
    """One tensor `(n, C, H, W)` of `(name, image)` pairs of one size.

    Raises:
        DataError: images of different sizes, or none.
    """
    arrays: list[Bytes] = []
    for name, image in images:
        array = np.asarray(image)
        if arrays and array.shape[:2] != arrays[0].shape[:2]:
            sizes = [f"{shape[1]}x{shape[0]}" for shape in (arrays[0].shape, array.shape)]
            raise DataError(
                f"images have one size; got {sizes[0]} and, for {name}, {sizes[1]}: give image_size (--image-size)"
            )
        arrays.append(array)
    if not arrays:
        raise DataError("a set of images holds at least one; got none: check the split it comes from")
    channels = max(1 if array.ndim == 2 else array.shape[2] for array in arrays)
    height, width = arrays[0].shape[:2]
    pixels = np.empty((len(arrays), channels, height, width), dtype=np.uint8)
    for index, array in enumerate(arrays):
        pixels[index] = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    return torch.from_numpy(pixels)
