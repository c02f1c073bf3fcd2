"""Networks that tests share: the paper's, and tricky little ones that declare the groups they expect."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import pytest
import torch
from torch import nn

import bcnet.models
from bcnet.space import WidthSpace
from bcnet.supernet.supernet import without_running_statistics


@dataclass(frozen=True)
class Known:
    """A network of the paper: input size for its published MACs, and a smaller one that runs fast."""

    groups: int
    mega_macs: float
    mega_params: float
    factory: Callable[[], nn.Module]
    size: int = 32
    small: int = 32


def _torchvision(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        models = pytest.importorskip("torchvision.models")
        return getattr(models, name)(weights=None)

    return make


PAPER = {
    "vgg19": Known(16, 398.1, 20.04, bcnet.models.vgg19),
    "vgg19_quarter": Known(16, 25.2, 1.26, bcnet.models.vgg19_quarter),
    "resnet20": Known(12, 40.8, 0.27, bcnet.models.resnet20),
    "mobilenetv2": Known(25, 296.5, 2.24, bcnet.models.mobilenetv2),
    "resnet18": Known(12, 1814.0, 11.69, _torchvision("resnet18"), 224, 64),
    "resnet50": Known(37, 4089.0, 25.56, _torchvision("resnet50"), 224, 64),
    "mobilenet_v2": Known(25, 300.8, 3.50, _torchvision("mobilenet_v2"), 224, 64),
    "efficientnet_b0": Known(40, 385.8, 5.29, _torchvision("efficientnet_b0"), 224, 64),
}

LARGE = ("resnet50", "mobilenet_v2", "efficientnet_b0")  # tracing one takes seconds
PAPER_CASES = [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in PAPER]


def seeded(factory: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A double-precision network with random batch-norm weights and all dropout off, so that equality is exact."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = factory().double()
        for part in model.modules():
            for attribute in ("p", "drop_prob"):
                if isinstance(getattr(part, attribute, None), float):
                    setattr(part, attribute, 0.0)
            if isinstance(part, nn.modules.batchnorm._NormBase) and part.affine:
                nn.init.uniform_(part.weight, 0.5, 1.5)
                nn.init.uniform_(part.bias, -0.5, 0.5)
    return model


def paper_network(name: str) -> tuple[nn.Module, WidthSpace, torch.Tensor]:
    """Model, space and a small input of one of the paper's networks; the model is the caller's own copy."""
    model, space, x = _paper_network(name)
    return copy.deepcopy(model), space, x


@cache
def _paper_network(name: str) -> tuple[nn.Module, WidthSpace, torch.Tensor]:
    known = PAPER[name]
    model = seeded(known.factory)
    x = torch.randn(2, 3, known.small, known.small, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return model, WidthSpace.trace(model, x), x


def batch_statistics(network: nn.Module) -> nn.Module:
    """The network in the mode in which it must equal a path: batch statistics in every batch norm."""
    return without_running_statistics(network).eval()


# ---------------------------------------------------------------- tricky little networks


class Residual(nn.Module):
    """Two streams added: the stem, the branch's end and the shortcut are one group, the branch's middle another."""

    expected: ClassVar = {"stem": 8, "middle": 6}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.middle = nn.Conv2d(8, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.end = nn.Conv2d(6, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = x + self.end(torch.relu(self.norm(self.middle(x))))
        return self.head(x.mean((2, 3)))


class Depthwise(nn.Module):
    """A depthwise convolution keeps its input's group; so does one with a channel multiplier of two."""

    expected: ClassVar = {"stem": 8, "point": 6}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.depth = nn.Conv2d(8, 8, 3, groups=8, padding=1)
        self.point = nn.Conv2d(8, 6, 1)
        self.widen = nn.Conv2d(6, 12, 3, groups=6, padding=1)
        self.head = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.widen(torch.relu(self.point(self.depth(torch.relu(self.stem(x)))))).amax((2, 3)))


class Gate(nn.Module):
    """Squeeze-and-excitation: the gate shares the group of what it gates, the squeeze layer has its own."""

    expected: ClassVar = {"stem": 8, "squeeze": 4}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.excite = nn.Conv2d(4, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(nn.functional.adaptive_avg_pool2d(x, 1)))))
        return self.head((x * gate).mean((2, 3)))


class Flatten(nn.Module):
    """Flattening gives every channel a run of columns in the linear layer."""

    expected: ClassVar = {"stem": 6, "hidden": 10}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, stride=2)
        self.hidden = nn.Linear(6 * 7 * 7, 10)
        self.head = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        return self.head(torch.relu(self.hidden(x.view(x.size(0), -1))))


class Concatenate(nn.Module):
    """A concatenation is read by one convolution: its input dimension has two segments."""

    expected: ClassVar = {"left": 4, "right": 6, "join": 8}

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 4, 1)
        self.right = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(10)
        self.join = nn.Conv2d(10, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(torch.cat([self.left(x), self.right(x)], dim=1))
        return self.head(torch.relu(self.join(x)).mean((2, 3)))


class AddToConcatenation(nn.Module):
    """What is added to a concatenation is cut where the concatenation has its seam."""

    expected: ClassVar = {"left": 4, "right": 6}

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 4, 1)
        self.right = nn.Conv2d(3, 6, 1)
        self.both = nn.Conv2d(3, 10, 1)
        self.head = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([self.left(x), self.right(x)], dim=1)
        return self.head(torch.relu(joined + self.both(x)).mean((2, 3)))


class Groups(nn.Module):
    """A group convolution loses whole groups: the unit is what one group holds."""

    expected: ClassVar = {"stem": 12, "last": 7}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 1)
        self.grouped = nn.Conv2d(12, 12, 3, groups=4, padding=1)
        self.norm = nn.GroupNorm(4, 12)
        self.last = nn.Conv2d(12, 7, 1)
        self.head = nn.Linear(7, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.last(torch.relu(self.norm(self.grouped(self.stem(x)))))).mean((2, 3)))


class ChannelsLast(nn.Module):
    """ConvNeXt's way: permute, layer norm, linear layers, a learned scale, and back."""

    expected: ClassVar = {"stem": 8, "up": 16}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 2, stride=2)
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.scale = nn.Parameter(torch.full((8, 1, 1), 0.5))
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y = self.down(nn.functional.gelu(self.up(self.norm(x.permute(0, 2, 3, 1))))).permute(0, 3, 1, 2)
        return self.head((x + self.scale * y).flatten(2).mean(2))


class StoredNumber(nn.Module):
    """The forward method holds a channel count that no graph shows: that group must stay full."""

    expected: ClassVar = {"last": 6}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.last = nn.Conv2d(8, 6, 1)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).reshape(x.shape[0], 8, x.shape[2] * x.shape[3]).reshape(x.shape[0], 8, *x.shape[2:])
        return self.head(torch.relu(self.last(x)).mean((2, 3)))


class PickedChannels(nn.Module):
    """Channels picked by their number cannot go."""

    expected: ClassVar = {"last": 6}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.last = nn.Conv2d(4, 6, 1)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.last(self.stem(x)[:, 2:6])).mean((2, 3)))


class SharedWeight(nn.Module):
    """One convolution applied twice ties its input to its output."""

    expected: ClassVar = {"stem": 8}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.twice = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        return self.head(torch.relu(self.twice(torch.relu(self.twice(x)))).mean((2, 3)))


class Halves(nn.Module):
    """A gated unit: the two halves of one convolution meet, so they keep the same channels."""

    expected: ClassVar = {"both": 6, "last": 7}

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Conv2d(3, 12, 1)
        self.last = nn.Conv2d(6, 7, 1)
        self.head = nn.Linear(7, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.both(x).chunk(2, dim=1)
        return self.head(torch.relu(self.last(value * torch.sigmoid(gate))).mean((2, 3)))


class Upscale(nn.Module):
    """Transposed convolution, pixel shuffle, PReLU and instance norm."""

    expected: ClassVar = {"stem": 6, "up": 4, "shuffle": 3}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, stride=2)
        self.act = nn.PReLU(6)
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.norm = nn.InstanceNorm2d(4, affine=True)
        self.shuffle = nn.Conv2d(4, 12, 1)
        self.head = nn.Linear(3, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.up(self.act(self.stem(x)))))
        return self.head(nn.functional.pixel_shuffle(self.shuffle(x), 2).amax((2, 3)))


class Attention(nn.Module):
    """CBAM: a channel gate of pooled statistics and a spatial gate over the channels' mean and maximum."""

    expected: ClassVar = {"stem": 8, "squeeze": 3}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.squeeze = nn.Linear(8, 3)
        self.excite = nn.Linear(3, 8)
        self.spatial = nn.Conv2d(2, 1, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        gate = self.excite(torch.relu(self.squeeze(x.mean((2, 3))))) + self.excite(self.squeeze(x.amax((2, 3))))
        x = x * torch.sigmoid(gate)[:, :, None, None]
        pooled = torch.cat([x.mean(1, keepdim=True), x.max(1, keepdim=True)[0]], dim=1)
        return self.head((x * torch.sigmoid(self.spatial(pooled))).mean((2, 3)))


class ChannelConvolution(nn.Module):
    """ECA: a convolution runs along the channels; its multiply-adds follow their number."""

    expected: ClassVar = {"stem": 8, "last": 6}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.along = nn.Conv1d(1, 1, 3, padding=1, bias=False)
        self.last = nn.Conv2d(8, 6, 1)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        gate = torch.sigmoid(self.along(x.mean((2, 3)).unsqueeze(1)))
        return self.head(self.last(x * gate.view(x.shape[0], -1, 1, 1)).mean((2, 3)))


class Shuffles(nn.Module):
    """ShuffleNet's blocks: half the channels pass, the other half is convolved, both are shuffled together."""

    expected: ClassVar = {"stem": 6, "last": 7}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 1)
        self.blocks = nn.ModuleList(nn.Conv2d(6, 6, 3, padding=1) for _ in range(3))
        self.last = nn.Conv2d(12, 7, 1)
        self.head = nn.Linear(7, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            passed, changed = x.chunk(2, dim=1)
            x = nn.functional.channel_shuffle(torch.cat([passed, torch.relu(block(changed))], dim=1), 2)
        return self.head(torch.relu(self.last(x)).mean((2, 3)))


class Pyramid(nn.Module):
    """Padding, interpolation, adaptive pools and a stack of maps that are added up."""

    expected: ClassVar = {"stem": 6, "down": 4}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3)
        self.down = nn.Conv2d(6, 4, 3, stride=2)
        self.up = nn.Conv2d(4, 6, 1)
        self.head = nn.Linear(6 * 4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(nn.functional.pad(x, (1, 1, 1, 1)))
        y = nn.functional.interpolate(self.up(torch.relu(self.down(x))), size=x.shape[2:], mode="bilinear")
        x = torch.stack([x, y], dim=1).sum(1)
        return self.head(nn.functional.adaptive_max_pool2d(x, 2).flatten(1))


class Volume(nn.Module):
    """Three dimensions folded into one, then a one-dimensional convolution."""

    expected: ClassVar = {"stem": 5, "line": 6}

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv3d(3, 5, 3, stride=2)
        self.norm = nn.BatchNorm3d(5)
        self.line = nn.Conv1d(5, 6, 3)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x.unsqueeze(2).expand(-1, -1, 4, -1, -1))))
        return self.head(self.line(x.flatten(2)).mean(2))


TRICKY: dict[str, type[nn.Module]] = {
    cls.__name__: cls
    for cls in (
        Residual, Depthwise, Gate, Flatten, Concatenate, AddToConcatenation, Groups, ChannelsLast, StoredNumber,
        PickedChannels, SharedWeight, Halves, Upscale, Attention, ChannelConvolution, Shuffles, Pyramid, Volume,
    )
}  # fmt: skip


def tricky_network(name: str) -> tuple[nn.Module, WidthSpace, torch.Tensor]:
    """Model, space and input of one of the little networks; the model is the caller's own copy."""
    model, space, x = _tricky_network(name)
    return copy.deepcopy(model), space, x


@cache
def _tricky_network(name: str) -> tuple[nn.Module, WidthSpace, torch.Tensor]:
    model = seeded(TRICKY[name])
    x = torch.randn(4, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return model, WidthSpace.trace(model, x), x
