"""Resizing of image files, as text stored with a run, and as a module that does the same to bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import nn
from torch.nn import functional

Filter = Literal["bicubic", "bilinear"]
_WORDS = "the shorter side resized to {} pixels ({}), the centre {}x{} cropped"
_PATTERN = re.compile(re.escape(_WORDS).replace(r"\{\}", r"(\w+)"))


@dataclass(frozen=True)
class Resizing:
    """Resizes the shorter side to `shorter` pixels and keeps the middle `size` by `size` pixels."""

    shorter: int
    size: int
    filter: Filter

    def __str__(self) -> str:
        return _WORDS.format(self.shorter, self.filter, self.size, self.size)

    @classmethod
    def read(cls, words: str) -> Resizing | None:
        """Parse a description of the preparation; None if it describes no resizing."""
        found = _PATTERN.match(words)
        return None if found is None else cls(int(found[1]), int(found[3]), cast(Filter, found[2]))

    def scaled_size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width before the crop, rounded down like torchvision's `Resize`."""
        short = min(height, width)
        return self.shorter * height // short, self.shorter * width // short

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """Return the first row and column that the crop keeps of a resized image."""
        return round((height - self.size) / 2), round((width - self.size) / 2)


class Resize(nn.Module):
    """Images `(batch, C, *from_size)`, bytes or floats from 0 to 255 -> floats `(batch, C, size, size)`.

    PIL rounds to bytes in between when it reads files, so values differ from its own by up to one.
    """

    def __init__(self, resizing: Resizing, from_size: tuple[int, int]) -> None:
        super().__init__()
        self.filter = resizing.filter
        self.size = resizing.size
        self.resized = resizing.scaled_size(*from_size)
        self.corner = resizing.corner(*self.resized)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the resized centre."""
        x = functional.interpolate(x.float(), self.resized, mode=self.filter, antialias=True).clamp(0, 255)
        top, left = self.corner
        return x[:, :, top : top + self.size, left : left + self.size]
