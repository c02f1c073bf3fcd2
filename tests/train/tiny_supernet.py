"""A supernet small enough to check by hand: two convolutions, a linear layer, two groups."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from bcnet.space import Polynomial, Side, WidthGroup, Widths, WidthSpace, floor_choices


def make_space(*widths: int, num_choices: int = 20, min_ratio: float = 0.0) -> WidthSpace:
    groups = tuple(
        WidthGroup(f"g{i}", width, 1, floor_choices(width, num_choices, min_ratio=min_ratio))
        for i, width in enumerate(widths)
    )
    terms = Polynomial({(i,): 1 for i in range(len(widths))})
    return WidthSpace(groups, terms, terms)


class TinySupernet(nn.Module):
    """Images (batch, 1, 4, 4) to 3 classes; same call as `bcnet.Supernet`."""

    def __init__(self) -> None:
        super().__init__()
        self.space = make_space(6, 8)
        self.first = nn.Conv2d(1, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 8, 3, padding=1)
        self.head = nn.Linear(8, 3)
        self.dropout = nn.Dropout(0.2)

    @property
    def network(self) -> nn.Module:
        return nn.Sequential(self.first, nn.ReLU(), self.second, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x: torch.Tensor, widths: Widths, side: Side) -> torch.Tensor:
        a, b = (slice(0, w) if side is Side.LEFT else slice(-w, None) for w in widths)
        x = functional.relu(functional.conv2d(x, self.first.weight[a], self.first.bias[a], padding=1))
        x = functional.relu(functional.conv2d(x, self.second.weight[b][:, a], self.second.bias[b], padding=1))
        return functional.linear(self.dropout(x.mean((2, 3))), self.head.weight[:, b], self.head.bias)


class TinyBatches:
    """Five batches of eight images, shuffled and jittered by the generator."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(40, 1, 4, 4, generator=generator)
        self.y = torch.randint(3, (40,), generator=generator)

    def __len__(self) -> int:
        return 5

    def epoch(self, generator: torch.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for rows in torch.randperm(40, generator=generator).split(8):
            yield self.x[rows] + 0.1 * torch.randn(8, 1, 4, 4, generator=generator), self.y[rows]
