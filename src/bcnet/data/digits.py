"""Scikit-learn's handwritten digits, plain or scattered over larger images; no download needed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from bcnet.data.augmentation import Augmentation
from bcnet.data.decoding import fit, stack
from bcnet.data.images import DataSet
from bcnet.data.splits import hold_out

Bytes = npt.NDArray[np.uint8]

_SIDE = 20  # pixels of a scattered image
_COPIES = (3, 8)  # images per digit, for training and test digits
_PIECES = 6  # parts of other digits per image
_PIECE = 3  # pixels
_NOISE = 50.0  # standard deviation, on a scale to 255


def digits(image_size: int | None = None) -> DataSet:
    """Return the 1,797 digits, 8x8 and grey, with a fixed fifth of every class for testing."""
    train, test = _parts()
    return DataSet.from_tensors(_to_size(*train, image_size), _to_size(*test, image_size), name="digits")


def scattered_digits(image_size: int | None = None) -> DataSet:
    """Return grey images with one digit at a random place, parts of other digits, and noise.

    Each digit of `digits` is drawn several times; no digit is in both training and test images.
    """
    train, test = (
        _to_size(*_scatter(images, labels, copies, seed), image_size)
        for seed, ((images, labels), copies) in enumerate(zip(_parts(), _COPIES, strict=True))
    )
    augmentation = Augmentation(padding=1, flip=False)
    return DataSet.from_tensors(train, test, name="scattered_digits", augmentation=augmentation)


def _parts() -> tuple[tuple[Bytes, torch.Tensor], tuple[Bytes, torch.Tensor]]:
    from sklearn.datasets import load_digits

    source = load_digits()
    values = torch.from_numpy((source.images * (255 / 16)).round().astype("uint8"))  # (1797, 8, 8), values 0..16
    train, test, _ = hold_out((values, torch.as_tensor(source.target, dtype=torch.int64)))
    (images, labels), (test_images, test_labels) = train, test
    assert isinstance(images, torch.Tensor)
    assert isinstance(test_images, torch.Tensor)
    return (images.numpy(), labels), (test_images.numpy(), test_labels)


def _scatter(images: Bytes, labels: torch.Tensor, copies: int, seed: int) -> tuple[Bytes, torch.Tensor]:
    """Return `copies` images of every digit and their labels, `(digits * copies, 20, 20)`."""
    rng = np.random.default_rng(seed)
    size = images.shape[-1]
    found = np.empty((len(images) * copies, _SIDE, _SIDE), np.uint8)
    for number in range(len(found)):
        canvas = np.zeros((_SIDE, _SIDE))
        for _ in range(_PIECES):
            y, x = rng.integers(size - _PIECE + 1, size=2)
            piece = images[rng.integers(len(images)), y : y + _PIECE, x : x + _PIECE]
            y, x = rng.integers(_SIDE - _PIECE + 1, size=2)
            canvas[y : y + _PIECE, x : x + _PIECE] = piece
        y, x = rng.integers(_SIDE - size + 1, size=2)
        place = canvas[y : y + size, x : x + size]
        np.maximum(0.3 * place, images[number // copies], out=place)
        canvas = canvas * rng.uniform(0.6, 1.0) + rng.normal(0, _NOISE, canvas.shape)
        found[number] = canvas.clip(0, 255).round()
    return found, labels.repeat_interleave(copies)


def _to_size(values: Bytes, labels: torch.Tensor, image_size: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    images = ((f"digit {index}", Image.fromarray(array)) for index, array in enumerate(values))
    if image_size is not None:
        images = ((name, fit(image, image_size)) for name, image in images)
    return stack(images), labels
