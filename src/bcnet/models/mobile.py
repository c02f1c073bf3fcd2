"""Networks of inverted residual blocks: MobileNetV2 for CIFAR-10 and ProxylessNAS (mobile).

Sources: Sandler et al., "MobileNetV2", CVPR 2018; Cai et al., "ProxylessNAS", ICLR 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bcnet.models.layers import InvertedResidual, conv_bn, initialise


@dataclass(frozen=True)
class Block:
    """An inverted residual block: expansion ratio, output channels, kernel size and stride."""

    expansion: int
    channels: int
    kernel_size: int = 3
    stride: int = 1


class MobileNet(nn.Module):
    """A 3x3 stem of 32 channels, inverted residual blocks, a 1x1 convolution to 1280 channels, and a linear layer.

    All channels, including the blocks', are multiplied by `width_mult`.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        num_classes: int,
        in_channels: int,
        *,
        stem_stride: int,
        width_mult: float = 1.0,
    ) -> None:
        super().__init__()
        channels = round(32 * width_mult)
        last = round(1280 * width_mult)
        layers = [*conv_bn(in_channels, channels, 3, stride=stem_stride), nn.ReLU6()]
        for block in blocks:
            hidden = channels * block.expansion
            narrow = round(block.channels * width_mult)
            layers.append(
                InvertedResidual(channels, hidden, narrow, kernel_size=block.kernel_size, stride=block.stride)
            )
            channels = narrow
        self.features = nn.Sequential(*layers, *conv_bn(channels, last, 1), nn.ReLU6())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(last, num_classes)
        initialise(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits `(batch, num_classes)` of images `(batch, in_channels, H, W)`."""
        x = self.pool(self.features(x))  # (batch, last, 1, 1)
        logits: torch.Tensor = self.classifier(x.flatten(1))
        return logits


def _stage(channels: int, kernel_sizes: Sequence[int], expansions: Sequence[int], stride: int) -> list[Block]:
    """Return blocks with one output width; the first one has the stride."""
    return [
        Block(expansion, channels, kernel_size, stride if index == 0 else 1)
        for index, (kernel_size, expansion) in enumerate(zip(kernel_sizes, expansions, strict=True))
    ]


def mobilenetv2(num_classes: int = 10, in_channels: int = 3, *, width_mult: float = 1.0) -> MobileNet:
    """Return MobileNetV2 for 32x32 images: 296.5M MACs, 2.24M parameters, 25 width groups at `width_mult=1`.

    Like the ImageNet version, but the stem and the 24- and 32-channel stages keep the resolution.
    """
    stages = ((24, 2, 1), (32, 3, 1), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1))  # channels, blocks, stride
    blocks = [Block(1, 16)]
    for channels, count, stride in stages:
        blocks += _stage(channels, [3] * count, [6] * count, stride)
    return MobileNet(blocks, num_classes, in_channels, stem_stride=1, width_mult=width_mult)


def proxylessnas_mobile(num_classes: int = 1000, in_channels: int = 3, *, width_mult: float = 1.0) -> MobileNet:
    """Return ProxylessNAS (mobile) for 224x224 images: 320M MACs, 4.1M parameters at `width_mult=1`."""
    blocks = [
        Block(1, 16),
        *_stage(32, (5, 3), (3, 3), stride=2),
        *_stage(40, (7, 3, 5, 5), (3, 3, 3, 3), stride=2),
        *_stage(80, (7, 5, 5, 5), (6, 3, 3, 3), stride=2),
        *_stage(96, (5, 5, 5, 5), (6, 3, 3, 3), stride=1),
        *_stage(192, (7, 7, 7, 7), (6, 6, 3, 3), stride=2),
        *_stage(320, (7,), (6,), stride=1),
    ]
    return MobileNet(blocks, num_classes, in_channels, stem_stride=2, width_mult=width_mult)
