"""Convolutions that oneDNN 3.12, as in torch 2.13, computes wrongly in bf16 on processors with AVX-512.

Strided convolutions of narrow maps (`brgconv`): if a map is narrower than the stride, or the output is one column of
several rows, outputs or weight gradients contain uninitialised memory; some in three dimensions end the process.
Residual networks for large images have such layers on small images: at 16 pixels, ResNet-18's last stage has one pixel.

Depthwise convolutions with row dilation (`jit_bf16`): if the output of a channels-last map has at least 29 columns, the
weight gradient is wrong. Segmentation networks have such layers.

In fp32 all of them are correct.
"""

from __future__ import annotations

import math
from typing import Any

import torch
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
            self.found |= groups == x.shape[1] == output.shape[1] and _is_wrongly_dilated(output.shape[2:], dilation)
        return output


def _is_wrong(large: torch.Size, small: torch.Size, stride: list[int]) -> bool:
    """Return whether a convolution between maps of these sizes, up to `(depth, height, width)`, is affected."""
    if large[-1] < stride[-1]:
        return True
    if small[-1] == 1 < stride[-1] and math.prod(small) > 1:
        return True
    return len(large) == 3 and max(stride) > 1


def _is_wrongly_dilated(made: torch.Size, dilation: list[int]) -> bool:
    """Return whether a depthwise convolution with an output map of this size, `(height, width)`, is affected."""
    return len(made) == 2 and dilation[0] > 1 and made[1] >= _WIDE
