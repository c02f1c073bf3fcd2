"""Building blocks of the networks, all ordinary torch modules."""

from __future__ import annotations

import torch
from torch import nn


def conv_bn(
    in_channels: int, out_channels: int, kernel_size: int, *, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """Return a convolution without bias that keeps the image size (divided by `stride`), and its batch norm."""
    convolution = nn.Conv2d(
        in_channels, out_channels, kernel_size, stride, padding=kernel_size // 2, groups=groups, bias=False
    )
    return [convolution, nn.BatchNorm2d(out_channels)]


def initialise(model: nn.Module) -> None:
    """Initialise weights: He-normal convolutions (fan out), unit batch norms, small normal linear layers."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: `relu(residual(x) + shortcut(x))` (He et al., 2016).

    If the block changes the shape, a 1x1 convolution with batch norm projects the shortcut.
    """

    def __init__(self, in_channels: int, middle: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *conv_bn(in_channels, middle, 3, stride=stride),
            nn.ReLU(),
            *conv_bn(middle, out_channels, 3),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(*conv_bn(in_channels, out_channels, 1, stride=stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images `(batch, in_channels, H, W)` to `(batch, out_channels, H / stride, W / stride)`."""
        return torch.relu(self.residual(x) + self.shortcut(x))


class InvertedResidual(nn.Module):
    """1x1 expansion, depthwise convolution, 1x1 projection (Sandler et al., 2018).

    The input is added if the shapes match. If `hidden` equals `in_channels` there is no expansion layer.
    """

    def __init__(
        self,
        in_channels: int,
        hidden: int,
        out_channels: int,
        *,
        kernel_size: int = 3,
        stride: int = 1,
        activation: type[nn.Module] = nn.ReLU6,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if hidden != in_channels:
            layers += [*conv_bn(in_channels, hidden, 1), activation()]
        layers += [*conv_bn(hidden, hidden, kernel_size, stride=stride, groups=hidden), activation()]
        self.layers = nn.Sequential(*layers, *conv_bn(hidden, out_channels, 1))
        self.adds_input = stride == 1 and in_channels == out_channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images `(batch, in_channels, H, W)` to `(batch, out_channels, H / stride, W / stride)`."""
        y: torch.Tensor = self.layers(x)
        return x + y if self.adds_input else y
