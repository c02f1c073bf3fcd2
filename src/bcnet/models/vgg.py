"""VGG19 for CIFAR-10: sixteen convolutions with batch norm and one linear layer (Simonyan and Zisserman, 2015).

A small network of the same kind is used by the demo.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from bcnet.models.layers import conv_bn, initialise

_STAGES = ((64, 64), (128, 128), (256, 256, 256, 256), (512, 512, 512, 512), (512, 512, 512, 512))


class VGG(nn.Module):
    """Stages of 3x3 convolutions with max pooling in between, then average pooling and one linear layer.

    Input `(batch, in_channels, H, W)` with H and W at least 16, output `(batch, num_classes)` logits.
    """

    def __init__(self, stages: tuple[tuple[int, ...], ...], num_classes: int, in_channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index, stage in enumerate(stages):
            if index > 0:
                layers.append(nn.MaxPool2d(2))
            for before, after in pairwise((in_channels, *stage)):
                layers += [*conv_bn(before, after, 3), nn.ReLU()]
            in_channels = stage[-1]
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(in_channels, num_classes)
        initialise(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of a batch of images."""
        x = self.pool(self.features(x))  # (batch, 512, 1, 1)
        logits: torch.Tensor = self.classifier(x.flatten(1))
        return logits


def vgg19(num_classes: int = 10, in_channels: int = 3) -> VGG:
    """Return VGG19 with batch norm for 32x32 images: 398.1M MACs, 20.04M parameters, 16 width groups."""
    return VGG(_STAGES, num_classes, in_channels)


def vgg19_quarter(num_classes: int = 10, in_channels: int = 3) -> VGG:
    """Return VGG19 with a quarter of the channels in every layer, for small machines: 25.2M MACs, 1.26M parameters."""
    return VGG(tuple(tuple(width // 4 for width in stage) for stage in _STAGES), num_classes, in_channels)


def vgg_digits(num_classes: int = 10, in_channels: int = 1) -> VGG:
    """Return a network for 20x20 scattered digits with wide early and narrow late layers.

    2.61M MACs, 12,202 parameters, 6 width groups.
    """
    return VGG(((24, 24), (12, 12), (12, 12)), num_classes, in_channels)
