"""Networks of 1.5 times the multiply-adds, every layer wider by one ratio: supernets for searches at 1.0 times.

The ratios are those whose counted MACs, with whole channels (EfficientNet's are multiples of 8), come nearest to 1.5
times the original's: 1.47 to 1.51. torchvision is imported where a network needs it.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from bcnet import models

# Kernel, stride, channels in and out, and layers of the stages of EfficientNet-B0 after the first (Tan and Le, 2019).
_STAGES = (
    (3, 2, 16, 24, 2),
    (5, 2, 24, 40, 2),
    (3, 2, 40, 80, 3),
    (5, 1, 80, 112, 3),
    (5, 2, 112, 192, 4),
    (3, 1, 192, 320, 1),
)


def mobilenet_v2(num_classes: int = 1000) -> nn.Module:
    from torchvision.models import MobileNetV2

    return MobileNetV2(num_classes=num_classes, width_mult=1.234, round_nearest=1)


def autoslim_mobilenet_v2(num_classes: int = 1000) -> nn.Module:
    """1.5 times the channels, twice the MACs: the network that AutoSlim's widths are for."""
    from torchvision.models import MobileNetV2

    return MobileNetV2(num_classes=num_classes, width_mult=1.5)


def efficientnet_b0(num_classes: int = 1000) -> nn.Module:
    from torchvision.models import EfficientNet
    from torchvision.models.efficientnet import MBConvConfig

    block = partial(MBConvConfig, width_mult=1.18, depth_mult=1.0)
    stages = [block(1, 3, 1, 32, 16, 1), *(block(6, *stage) for stage in _STAGES)]
    return EfficientNet(stages, dropout=0.2, num_classes=num_classes)


def proxylessnas_mobile(num_classes: int = 1000) -> nn.Module:
    return models.proxylessnas_mobile(num_classes, width_mult=1.243)


def resnet20(num_classes: int = 10) -> nn.Module:
    return models.resnet20(num_classes, width_mult=1.22)


def resnet_digits(num_classes: int = 10, in_channels: int = 1) -> nn.Module:
    return models.resnet_digits(num_classes, in_channels, width_mult=1.22)
