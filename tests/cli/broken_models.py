"""Factories that `--model broken_models:NAME` finds: each is wrong in its own way."""

import torch
from torch import nn


class Wide(nn.Module):
    """Wants three channels; the digits have one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.first(x).mean((2, 3)))


class Flat(nn.Module):
    """Fits images of 8 x 8 pixels alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8 * 36, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.first(x).flatten(1))


class Exploding(nn.Module):
    """Computes what is no number."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.first(x).mean((2, 3))) * float("inf")


def failing() -> nn.Module:
    raise RuntimeError("no luck")


def number() -> int:
    return 3
