"""A network for each task: pictures from pictures, boxes, the sum of two digits, who speaks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def _layer(inputs: int, outputs: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(_layer(inputs, outputs), _layer(outputs, outputs))


class UNet(nn.Module):
    """Ronneberger et al. (2015), of three levels: logits for 11 classes at every pixel."""

    def __init__(self, classes: int = 11, width: int = 12) -> None:
        super().__init__()
        self.first = _block(3, width)
        self.second = _block(width, 2 * width)
        self.deepest = _block(2 * width, 4 * width)
        self.up_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.back_second = _block(4 * width, 2 * width)
        self.up_first = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.back_first = _block(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 2))
        deepest = self.deepest(functional.max_pool2d(second, 2))
        x = self.back_second(torch.cat([self.up_second(deepest), second], 1))
        return self.head(self.back_first(torch.cat([self.up_first(x), first], 1)))


class Denoiser(nn.Module):
    """DnCNN (Zhang et al., 2017), of six layers: what it gives is taken off the picture."""

    def __init__(self, width: int = 24, depth: int = 6) -> None:
        super().__init__()
        first = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU())
        self.layers = nn.Sequential(first, *(_layer(width, width) for _ in range(depth - 2)))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.5 - self.last(self.layers(x))


class Doubler(nn.Module):
    """Twice the size by a pixel shuffle (ESPCN, Shi et al., 2016), added to what bilinear resizing gives."""

    def __init__(self, width: int = 24, depth: int = 5) -> None:
        super().__init__()
        first = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU())
        self.layers = nn.Sequential(first, *(_layer(width, width) for _ in range(depth - 2)))
        self.last = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x: Tensor) -> Tensor:
        resized = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return resized + 0.5 + self.last(self.layers(x))


class Detector(nn.Module):
    """CenterNet's map (Zhou et al., 2019) at half the size, from three levels that meet again."""

    def __init__(self, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        self.first = _layer(3, width)
        self.second = _block(width, 2 * width)
        self.deepest = _block(2 * width, 4 * width)
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.back = _block(4 * width, 2 * width)
        self.head = nn.Conv2d(2 * width, classes + 4, 1)
        nn.init.constant_(self.head.bias[:classes], -2.2)

    def forward(self, x: Tensor) -> Tensor:
        second = self.second(functional.max_pool2d(self.first(x), 2))
        deepest = self.deepest(functional.max_pool2d(second, 2))
        return self.head(self.back(torch.cat([self.up(deepest), second], 1)))


class Adder(nn.Module):
    """The sum of two digits: one tower for both, what it sees of each side by side."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.tower = nn.Sequential(_layer(1, width), _layer(width, 2 * width), nn.MaxPool2d(2), _layer(2 * width, 32))
        self.hidden = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 19)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        seen = [self.tower(picture).amax((2, 3)) for picture in (left, right)]
        return self.head(self.hidden(torch.cat(seen, 1)))


class Listener(nn.Module):
    """Convolutions along time: the fully convolutional network of Wang, Yan and Oates (2017), a quarter as wide."""

    def __init__(self, channels: int = 12, classes: int = 9, width: int = 32) -> None:
        super().__init__()
        sizes = ((channels, width, 8), (width, 2 * width, 5), (2 * width, width, 3))
        self.layers = nn.Sequential(*(self._layer(*size) for size in sizes))
        self.head = nn.Linear(width, classes)

    @staticmethod
    def _layer(inputs: int, outputs: int, length: int) -> nn.Sequential:
        convolution = nn.Conv1d(inputs, outputs, length, padding="same", bias=False)
        return nn.Sequential(convolution, nn.BatchNorm1d(outputs), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean(2))
