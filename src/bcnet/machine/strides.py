"""Strided 1x1 convolutions of few channels, which oneDNN gets wrong on processors with AVX2.

Where images are channels-last, its weight gradient of a convolution with a 1x1 kernel, a stride, no padding and fewer
than 8 input channels is wrong or overwrites memory that is not its own, and the process ends in a segmentation fault,
if at all (oneDNN 3.12 in torch 2.13, `jit_1x1:avx2`, `backward_weights`). Shortcuts of residual networks are such
convolutions, and paths and narrow networks have few channels. Such a convolution skips the pixels itself here, which
gives the same outputs: `y = W x[::s, ::s]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional

_NARROW = 16  # channels: the floats of the widest vector; with AVX2 it takes fewer than 8


class UnitStrides:
    """Lets the strided 1x1 convolutions of a network take every s-th pixel themselves, within `apply`."""

    def __init__(self, network: nn.Module) -> None:
        self._parts = [part for part in network.modules() if _is_strided(part)]

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Within the block the network computes so; its backward pass may come after the block."""
        before = [type(part) for part in self._parts]  # of blocks inside each other the inner one changes nothing
        for part in self._parts:
            part.__class__ = _EverySth
        try:
            yield
        finally:
            for part, kind in zip(self._parts, before, strict=True):
                part.__class__ = kind


class _EverySth(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution of every s-th pixel where `x` `(..., channels, height, width)` has few channels."""
        if x.device.type != "cpu" or x.shape[-3] >= _NARROW:
            return super().forward(x)
        down, across = self.stride
        return functional.conv2d(x[..., ::down, ::across], self.weight, self.bias)


def _is_strided(part: nn.Module) -> bool:
    """Return whether `part` is one; a subclass computes by code of its own."""
    return (
        type(part) is nn.Conv2d
        and part.kernel_size == (1, 1)
        and part.stride != (1, 1)
        and part.padding in ((0, 0), "valid")
        and part.groups == 1
    )
