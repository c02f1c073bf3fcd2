"""Residual networks of basic blocks: ResNet-20 and ResNet-56 for CIFAR-10, and a small one for 8x8 digits.

Source: He et al., "Deep Residual Learning", CVPR 2016, with projection shortcuts (option B).
"""

from __future__ import annotations

import torch
from torch import nn

from bcnet.models.layers import BasicBlock, conv_bn, initialise


class CifarResNet(nn.Module):
    """A stem and three stages of 16, 32 and 64 channels with `blocks` basic blocks each: depth `6 * blocks + 2`.

    All channels are multiplied by `width_mult`.
    """

    def __init__(self, blocks: int, num_classes: int, in_channels: int, *, width_mult: float = 1.0) -> None:
        super().__init__()
        a, b, c = (round(channels * width_mult) for channels in (16, 32, 64))
        self.stem = nn.Sequential(*conv_bn(in_channels, a, 3), nn.ReLU())
        self.stages = nn.Sequential(
            _stage(a, a, blocks, stride=1), _stage(a, b, blocks, stride=2), _stage(b, c, blocks, stride=2)
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(c, num_classes)
        initialise(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits `(batch, num_classes)` of images `(batch, in_channels, H, W)`."""
        x = self.pool(self.stages(self.stem(x)))  # (batch, channels, 1, 1)
        logits: torch.Tensor = self.classifier(x.flatten(1))
        return logits


def _stage(in_channels: int, channels: int, blocks: int, stride: int) -> nn.Sequential:
    rest = [BasicBlock(channels, channels, channels) for _ in range(blocks - 1)]
    return nn.Sequential(BasicBlock(in_channels, channels, channels, stride), *rest)


class DigitsResNet(nn.Module):
    """A small network for 8x8 images: plain convolutions around one basic block at each of two resolutions.

    16 to 48 channels, multiplied by `width_mult`.
    """

    def __init__(self, num_classes: int, in_channels: int, *, width_mult: float = 1.0) -> None:
        super().__init__()
        a, b, c, d = (round(channels * width_mult) for channels in (16, 24, 32, 48))
        self.features = nn.Sequential(
            *conv_bn(in_channels, a, 3),
            nn.ReLU(),
            *conv_bn(a, b, 3),
            nn.ReLU(),
            BasicBlock(b, b, b),
            BasicBlock(b, c, c, stride=2),
            *conv_bn(c, d, 1),
            nn.ReLU(),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(d, num_classes)
        initialise(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits `(batch, num_classes)` of images `(batch, in_channels, H, W)`."""
        x = self.pool(self.features(x))  # (batch, channels, 1, 1)
        logits: torch.Tensor = self.classifier(x.flatten(1))
        return logits


def resnet20(num_classes: int = 10, in_channels: int = 3, *, width_mult: float = 1.0) -> CifarResNet:
    """Return ResNet-20 for 32x32 images: 40.8M MACs, 0.27M parameters, 12 width groups at `width_mult=1`."""
    return CifarResNet(3, num_classes, in_channels, width_mult=width_mult)


def resnet56(num_classes: int = 10, in_channels: int = 3) -> CifarResNet:
    """Return ResNet-56 for 32x32 images: 125.7M MACs, 0.86M parameters, 30 width groups."""
    return CifarResNet(9, num_classes, in_channels)


def resnet_digits(num_classes: int = 10, in_channels: int = 1, *, width_mult: float = 1.0) -> DigitsResNet:
    """Return a network for 8x8 digits that trains in seconds.

    1.19M MACs, 33,354 parameters, 6 width groups at `width_mult=1`.
    """
    return DigitsResNet(num_classes, in_channels, width_mult=width_mult)
