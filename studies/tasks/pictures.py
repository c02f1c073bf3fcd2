"""Real pixels and sounds for the tasks: photographs and handwritten digits of scikit-learn, spoken vowels of sktime.

Photographs are cut into patches, those for training from the left two thirds of each, the others from the right third;
digits are those of other rows of the data set for each part, so that no pixel is in two parts. Vowels are the "Japanese
Vowels" of the UCI repository (Kudo, Toyama and Shimbo, 1999): nine men say /ae/, frames of 12 cepstrum coefficients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

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
_FRAMES = 29  # of the longest vowel


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
    pictures = patches(part, count)
    masks = torch.full((count, _SIZE, _SIZE), BACKGROUND)
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


def boxed(part: Part, count: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Patches with up to three bright digits each, and their boxes around what is inked."""
    generator = torch.Generator().manual_seed(300 + PARTS.index(part))
    pictures = patches(part, count)
    digits = load_digits()
    strokes = functional.interpolate(torch.from_numpy(digits.images)[:, None].float() / 16, scale_factor=1.5)[:, 0]
    boxes = torch.zeros(count, _SCENE, 4)
    labels = torch.full((count, _SCENE), -1)
    size = strokes.shape[-1]
    for number in range(count):
        taken = torch.zeros(_SIZE, _SIZE, dtype=torch.bool)
        for place in range(_SCENE):
            which = int(torch.randint(*_ROWS[part], (), generator=generator))
            row, column = torch.randint(_SIZE - size + 1, (2,), generator=generator).tolist()
            inked = strokes[which] > 0.4
            down, along = (inked.any(dim=1 - d).nonzero()[:, 0] for d in (0, 1))
            y1, y2, x1, x2 = (int(v) for v in (down[0], down[-1] + 1, along[0], along[-1] + 1))
            if taken[row : row + size, column : column + size].any():
                continue  # digits do not cover each other
            taken[row : row + size, column : column + size] = True
            window = pictures[number][:, row : row + size, column : column + size]
            window.copy_(torch.where(inked, 1.0, window * 0.7))
            boxes[number, place] = torch.tensor([column + x1, row + y1, column + x2, row + y2], dtype=torch.float32)
            labels[number, place] = int(digits.target[which])
    return pictures, {"boxes": boxes, "labels": labels}


def pairs(part: Part, count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Two digits and their sum, 0 to 18."""
    generator = torch.Generator().manual_seed(400 + PARTS.index(part))
    digits = load_digits()
    images = torch.from_numpy(digits.images)[:, None].float() / 16
    numbers = torch.from_numpy(digits.target)
    left, right = (torch.randint(*_ROWS[part], (count,), generator=generator) for _ in range(2))
    return (images[left], images[right]), (numbers[left] + numbers[right]).long()


def vowels(part: Part, count: int) -> tuple[Tensor, Tensor]:
    """Cepstra `(count, 12, 29)`, zeros after the end, and who speaks, 0 to 8; there are 180, 90 and 370, no more."""
    from sktime.datasets import load_japanese_vowels

    series, speakers = load_japanese_vowels(
        split="test" if part == "test" else "train", return_X_y=True, return_type="nested_univ"
    )
    sounds = torch.zeros(len(series), len(series.columns), _FRAMES)
    for number, row in enumerate(series.itertuples(index=False)):
        for channel, values in enumerate(row):
            sounds[number, channel, : len(values)] = torch.as_tensor(values.to_numpy().copy())
    labels = torch.tensor([int(speaker) - 1 for speaker in speakers])
    held = torch.arange(len(labels)) % 3 == 2
    mine = slice(None) if part == "test" else held if part == "validation" else ~held
    return sounds[mine][:count], labels[mine][:count]


def noisy(part: Part, count: int) -> tuple[Tensor, Tensor]:
    """Patches with noise, and without."""
    clean = patches(part, count)
    generator = torch.Generator().manual_seed(200 + PARTS.index(part))
    return clean + _NOISE * torch.randn(clean.shape, generator=generator), clean


def halved(part: Part, count: int) -> tuple[Tensor, Tensor]:
    """Patches at half their size, and whole."""
    whole = patches(part, count)
    return functional.avg_pool2d(whole, 2), whole


class _Items(Dataset[Any]):
    """Inputs and targets item by item, moved towards zero by `shift`."""

    def __init__(self, inputs: Any, targets: Any, shift: float) -> None:
        self.inputs = inputs
        self.targets = targets
        self.shift = shift

    def __len__(self) -> int:
        return len(self.inputs[0] if isinstance(self.inputs, tuple) else self.inputs)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        several = isinstance(self.inputs, tuple)
        inputs = tuple(x[number] - self.shift for x in self.inputs) if several else self.inputs[number] - self.shift
        found = isinstance(self.targets, dict)
        return inputs, {k: v[number] for k, v in self.targets.items()} if found else self.targets[number]


def loaders(make: Callable[[Part, int], tuple[Any, Any]], counts: tuple[int, int, int], name: str) -> Loaders:
    """The three loaders of `make(part, count)`, pictures around zero."""
    shift = 0.0 if make is vowels else 0.5
    parts = []
    for part, count in zip(PARTS, counts, strict=True):
        items = _Items(*make(part, count), shift)
        parts.append(DataLoader(items, _BATCH, shuffle=part == "training", drop_last=part == "training"))
    return Loaders(*parts, name=name)
