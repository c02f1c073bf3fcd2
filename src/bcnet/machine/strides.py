"""Workaround for strided 1x1 convolutions with few channels, which oneDNN computes wrongly on processors with AVX2.

For channels-last images, its weight gradient of a convolution with a 1x1 kernel, a stride, no padding and fewer than 8
input channels is wrong or overwrites foreign memory, so that the process may end with a segmentation fault (oneDNN 3.12
in torch 2.13, `jit_1x1:avx2`, `backward_weights`). Shortcuts of residual networks are such convolutions, and paths and
narrow networks have few channels. Here such a convolution skips the pixels itself, with equal outputs:
`y = W x[::s, ::s]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional

_NARROW = 16  # floats in the widest vector; AVX2 is affected below 8 channels


class UnitStrides:
    """Makes the strided 1x1 convolutions of a network slice their input, within `apply`."""

    def __init__(self, network: nn.Module) -> None:
        self._parts = [part for part in network.modules() if _is_strided(part)]

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Change the network's convolutions within the block; the backward pass may come after it."""
        before = [type(part) for part in self._parts]  # of nested blocks the inner one changes nothing
        for part in self._parts:
            part.__class__ = _EverySth
        try:
            yield
        finally:
            for part, kind in zip(self._parts, before, strict=True):
                part.__class__ = kind


class _EverySth(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve every s-th pixel if `x` `(..., channels, height, width)` has few channels."""
        if x.device.type != "cpu" or x.shape[-3] >= _NARROW:
            return super().forward(x)
        down, across = self.stride
        return functional.conv2d(x[..., ::down, ::across], self.weight, self.bias)


def _is_strided(part: nn.Module) -> bool:
    """Return whether `part` is such a convolution; subclasses have their own code."""
    return (
        type(part) is nn.Conv2d
        and part.kernel_size == (1, 1)
        and part.stride != (1, 1)
        and part.padding in ((0, 0), "valid")
        and part.groups == 1
    )
