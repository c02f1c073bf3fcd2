"""The two networks of Channel-Bench-Macro: with 4 widths in 7 groups, all combinations were trained on CIFAR-10.

Source: https://github.com/xiusu/Channel-Bench-Macro (by the authors of BCNet). An `arch` of the benchmark is a string
of seven digits 1..4, one per group in network order: digit `d` means `d / 4` of the full width.
"""

from __future__ import annotations

import torch
from torch import nn

from bcnet.models.layers import BasicBlock, InvertedResidual, conv_bn, initialise


class ChannelBenchNet(nn.Module):
    """A 3x3 stem of stride 2, then `features`, average pooling and a linear layer.

    Input `(batch, in_channels, H, W)`, output `(batch, num_classes)` logits.
    """

    def __init__(
        self, stem_channels: int, features: list[nn.Module], channels: int, num_classes: int, in_channels: int
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_bn(in_channels, stem_channels, 3, stride=2), nn.ReLU())
        self.features = nn.Sequential(*features)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, num_classes)
        initialise(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of a batch of images."""
        x = self.pool(self.features(self.stem(x)))  # (batch, channels, 1, 1)
        logits: torch.Tensor = self.classifier(x.flatten(1))
        return logits


def channel_bench_mobilenet(num_classes: int = 10, in_channels: int = 3) -> ChannelBenchNet:
    """The benchmark's MobileNet for 32x32 images: 211.3M MACs, 1.80M parameters.

    Groups in `arch` order: 128 (stem and first blocks), 768, 768, 768, 256 (last blocks), 1536, 1024.
    """
    features = [
        _block(128, 768, 128),
        _block(128, 768, 128),
        _block(128, 768, 256, stride=2),
        _block(256, 1536, 256),
        *conv_bn(256, 1024, 1),
        nn.ReLU(),
    ]
    return ChannelBenchNet(128, features, 1024, num_classes, in_channels)


def _block(in_channels: int, hidden: int, out_channels: int, stride: int = 1) -> InvertedResidual:
    return InvertedResidual(in_channels, hidden, out_channels, stride=stride, activation=nn.ReLU)


def channel_bench_resnet(num_classes: int = 10, in_channels: int = 3) -> ChannelBenchNet:
    """The benchmark's ResNet for 32x32 images: 1,436.2M MACs, 15.36M parameters.

    Groups in `arch` order: 256 (stem and first blocks), 256, 256, 512, 512 (last blocks), 512, 512. The pair of
    convolutions that halves the resolution has no shortcut.
    """
    features: list[nn.Module] = [
        BasicBlock(256, 256, 256),
        BasicBlock(256, 256, 256),
        *conv_bn(256, 512, 3, stride=2),
        nn.ReLU(),
        *conv_bn(512, 512, 3),
        nn.ReLU(),
        BasicBlock(512, 512, 512),
        BasicBlock(512, 512, 512),
    ]
    return ChannelBenchNet(256, features, 512, num_classes, in_channels)
