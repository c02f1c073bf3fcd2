"""Workarounds for convolutions that oneDNN 3.12, as in torch 2.13, computes wrongly on some processors.

bf16 with AVX-512 (`WrongInBf16`; in fp32 all of them are correct):

- Strided convolutions of narrow maps (`brgconv`): if a map is narrower than the stride, or the output is one column of
  several rows, outputs or weight gradients contain uninitialised memory; some in three dimensions end the process.
  Residual networks for large images have such layers on small images: at 16 pixels, ResNet-18's last stage has one
  pixel.
- Grouped convolutions with row dilation (`jit_bf16`): if the output of a channels-last map has at least 29 columns, the
  weight gradient is wrong. Segmentation networks have such layers. Depthwise ones are wrong on all these processors,
  those with several channels per group on some.

Strided 1x1 convolutions (`UnitStrides`): for channels-last images, the weight gradient of a convolution with a 1x1
kernel, a stride, no padding and fewer input channels than a vector has floats (8 with AVX2, 16 with AVX-512) is wrong
or overwrites foreign memory, so that the process may end with a segmentation fault (`jit_1x1`, `backward_weights`).
Shortcuts of residual networks are such convolutions, and paths and narrow networks have few channels. Here such a
convolution skips the pixels itself, with equal outputs: `y = W x[::s, ::s]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

_WIDE = 29  # columns


class WrongInBf16(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Detects such convolutions among the operators of a block by their sizes, without computing anything in bf16.

    `found` is True if there were any.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and check its sizes if it is a convolution."""
        output = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution.default:
            x, _, _, stride, _, dilation, transposed, _, groups = args
            large, small = (output, x) if transposed else (x, output)
            self.found |= _is_wrong(large.shape[2:], small.shape[2:], stride)
            self.found |= groups > 1 and _is_wrongly_dilated(output.shape[2:], dilation)
        return output


def _is_wrong(large: torch.Size, small: torch.Size, stride: list[int]) -> bool:
    """Return whether a convolution between maps of these sizes, up to `(depth, height, width)`, is affected."""
    if large[-1] < stride[-1]:
        return True
    if small[-1] == 1 < stride[-1] and math.prod(small) > 1:
        return True
    return len(large) == 3 and max(stride) > 1


def _is_wrongly_dilated(made: torch.Size, dilation: list[int]) -> bool:
    """Return whether a grouped convolution with an output map of this size, `(height, width)`, is affected."""
    return len(made) == 2 and dilation[0] > 1 and made[1] >= _WIDE


_NARROW = 16  # floats in the widest vector


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
