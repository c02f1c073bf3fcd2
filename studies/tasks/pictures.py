"""Real pixels for tasks other than classification: the two photographs and the handwritten digits of scikit-learn.

Photographs are cut into patches, those for training from the left two thirds of each, the others from the right third;
digits are those of other rows of the data set for each part, so that no pixel is in two parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from bcnet.data import Loaders

Part = Literal["training", "validation", "test"]
PARTS: tuple[Part, ...] = ("training", "validation", "test")
BACKGROUND = 10  # the class of what is no digit
_SIZE = 32  # of patches, in pixels
_BATCH = 32
_NOISE = 25 / 255  # standard deviation of what is to be taken out, of pixels in [0, 1]
_SPANS = {"training": (0.0, 0.66), "validation": (0.66, 0.82), "test": (0.82, 1.0)}  # of a photograph's width
_ROWS = {"training": (0, 1200), "validation": (1200, 1500), "test": (1500, 1797)}  # of the digits
_SCENE = 3  # digits in each


def patches(part: Part, count: int) -> Tensor:
    """`(count, 3, 32, 32)` in [0, 1], anywhere in this part's share of the photographs."""
    generator = torch.Generator().manual_seed(PARTS.index(part))
    photographs = [torch.from_numpy(image.copy()).permute(2, 0, 1) / 255 for image in load_sample_images().images]
    found = []
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        _, height, width = photograph.shape
        first, last = (round(share * width) for share in _SPANS[part])
        row = int(torch.randint(height - _SIZE + 1, (), generator=generator))
        column = first + int(torch.randint(last - first - _SIZE + 1, (), generator=generator))
        found.append(photograph[:, row : row + _SIZE, column : column + _SIZE])
    return torch.stack(found)


def scenes(part: Part, count: int) -> tuple[Tensor, Tensor]:
    """Patches with three bright digits each, twice their size, and the class of every pixel `(count, 32, 32)`."""
    generator = torch.Generator().manual_seed(100 + PARTS.index(part))
    pictures, masks = patches(part, count), torch.full((count, _SIZE, _SIZE), BACKGROUND)
    digits = load_digits()
    strokes = functional.interpolate(torch.from_numpy(digits.images)[:, None].float() / 16, scale_factor=1.5)[:, 0]
    size = strokes.shape[-1]
    for number in range(count):
        for _ in range(_SCENE):
            which = int(torch.randint(*_ROWS[part], (), generator=generator))
            row, column = torch.randint(_SIZE - size + 1, (2,), generator=generator).tolist()
            place = (slice(row, row + size), slice(column, column + size))
            inked = strokes[which] > 0.4
            pictures[number][:, *place] = torch.where(inked, 1.0, pictures[number][:, *place] * 0.7)
            masks[number][place] = torch.where(inked, int(digits.target[which]), masks[number][place])
    return pictures, masks


def noisy(part: Part, count: int) -> tuple[Tensor, Tensor]:
    """Patches with noise, and without."""
    clean = patches(part, count)
    generator = torch.Generator().manual_seed(200 + PARTS.index(part))
    return clean + _NOISE * torch.randn(clean.shape, generator=generator), clean


def halved(part: Part, count: int) -> tuple[Tensor, Tensor]:
    """Patches at half their size, and whole."""
    whole = patches(part, count)
    return functional.avg_pool2d(whole, 2), whole


def loaders(make: Callable[[Part, int], tuple[Tensor, Tensor]], counts: tuple[int, int, int], name: str) -> Loaders:
    """The three loaders of `make(part, count)`, images around zero."""
    parts = []
    for part, count in zip(PARTS, counts, strict=True):
        x, y = make(part, count)
        parts.append(DataLoader(TensorDataset(x - 0.5, y), _BATCH, shuffle=part == "training"))
    return Loaders(*parts, name=name)
