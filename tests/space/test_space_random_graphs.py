"""Random networks of residuals, concatenations, splits, depthwise layers, gates and shuffles keep every property."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties import check_network
from torch import nn

KINDS = (
    "conv",
    "depthwise",
    "residual",
    "gate",
    "concat",
    "split",
    "shuffle",
    "dense",
    "bottleneck",
    "glu",
    "groups",
    "norm",
)


class RandomNetwork(nn.Module):
    """A stem, a list of blocks chosen by name, and a linear head."""

    def __init__(self, stem: int, blocks: list[tuple[str, int]], flatten: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, stem, 3, padding=1)
        self.blocks = nn.ModuleList()
        channels = stem
        for kind, width in blocks:
            block = BLOCKS[kind](channels, width)
            self.blocks.append(block)
            channels = block.channels
        self.flatten = flatten
        self.head = nn.Linear(channels * (16 if flatten else 1), 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x.flatten(1) if self.flatten else x.mean((2, 3)))


class Conv(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = width
        self.conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


class DepthwiseBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = channels * 2
        self.conv = nn.Conv2d(channels, channels * 2, 3, padding=1, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x))


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = channels
        self.a = Conv(channels, width)
        self.b = nn.Conv2d(width, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(self.a(x))


class GateBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = channels
        self.down, self.up = nn.Linear(channels, width), nn.Linear(width, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3))))))
        return x * gate.view(x.shape[0], -1, 1, 1)


class ConcatBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = width + 3
        self.a, self.b = nn.Conv2d(channels, width, 1), nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.a(x), torch.relu(self.b(x))], dim=1)


class SplitBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = width
        self.conv = nn.Conv2d(channels, 2 * width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.conv(x).chunk(2, dim=1)
        return a + torch.tanh(b)


class ShuffleBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = 2 * width
        self.conv = nn.Conv2d(channels, 2 * width, 1)
        self.branch = Conv(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.conv(x).chunk(2, dim=1)
        x = torch.cat([a, self.branch(b)], dim=1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class DenseBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = channels + width
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, width, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.conv(torch.relu(self.norm(x)))], dim=1)


class BottleneckBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = width
        self.shortcut = nn.Conv2d(channels, width, 1)
        self.a, self.b = Conv(channels, 3), Conv(3, width)
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shortcut(x) + self.scale * self.b(self.a(x))


class GluBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = width
        self.conv = nn.Conv2d(channels, 2 * width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.glu(self.conv(x), dim=1)


class GroupsBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = 12
        self.point = nn.Conv2d(channels, 12, 1)
        self.conv = nn.Conv2d(12, 12, 3, padding=1, groups=4)
        self.norm = nn.GroupNorm(4, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(self.point(x))))


class NormBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = channels
        self.norm = nn.LayerNorm(channels)
        self.up, self.down = nn.Linear(channels, width), nn.Linear(width, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(nn.functional.gelu(self.up(self.norm(x.permute(0, 2, 3, 1)))))
        return x + y.permute(0, 3, 1, 2)


BLOCKS: dict[str, type[nn.Module]] = dict(
    zip(
        KINDS,
        (
            Conv, DepthwiseBlock, ResidualBlock, GateBlock, ConcatBlock, SplitBlock, ShuffleBlock, DenseBlock,
            BottleneckBlock, GluBlock, GroupsBlock, NormBlock,
        ),
        strict=True,
    )
)  # fmt: skip

networks = st.builds(
    RandomNetwork,
    st.integers(2, 8),
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(2, 7)), min_size=1, max_size=5),
    st.booleans(),
)


def _check(network: nn.Module, seed: int) -> None:
    x = torch.randn(3, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    space = check_network(network.double(), x, seed)
    assert space.macs_terms.terms.get((), 0) < space.reference.macs, "something must be searchable"


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(networks, st.integers(0, 2**31))
def test_random_networks_keep_every_property(network: nn.Module, seed: int) -> None:
    _check(network, seed)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks, st.integers(0, 2**31))
def test_many_random_networks_keep_every_property(network: nn.Module, seed: int) -> None:
    _check(network, seed)
