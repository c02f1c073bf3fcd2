"""Convolutions that oneDNN 3.12, as in torch 2.13, computes wrongly in bf16 on processors with AVX-512.

Strided ones of narrow maps (`brgconv`): where a map is narrower than the stride, or what is made of it is one column of
several rows, outputs or the weight gradient hold what was in memory before; some in three dimensions end the process.
Residual networks for large images have such layers where the images are small: of 16 pixels nothing but one is left
before the last stage of ResNet-18.

Depthwise ones that are dilated from row to row (`jit_bf16`): where the output of a channels-last map is 29 columns wide
or more, the weight gradient is wrong. Segmentation networks have such layers.

In fp32 all of them are right.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_WIDE = 29  # columns


class WrongInBf16(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Finds such convolutions among the operators of a block, by their sizes: nothing has to be computed in bf16.

    `found` says whether there were any.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and look at its sizes where it is a convolution."""
        output = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution.default:
            x, _, _, stride, _, dilation, transposed, _, groups = args
            large, small = (output, x) if transposed else (x, output)
            self.found |= _is_wrong(large.shape[2:], small.shape[2:], stride)
            self.found |= groups == x.shape[1] == output.shape[1] and _is_wrongly_dilated(output.shape[2:], dilation)
        return output


def _is_wrong(large: torch.Size, small: torch.Size, stride: list[int]) -> bool:
    """Return whether a convolution between maps of these sizes, `(depth, height, width)` at most, is one of them."""
    if large[-1] < stride[-1]:
        return True
    if small[-1] == 1 < stride[-1] and math.prod(small) > 1:
        return True
    return len(large) == 3 and max(stride) > 1


def _is_wrongly_dilated(made: torch.Size, dilation: list[int]) -> bool:
    """Return whether a depthwise convolution that makes maps of this size, `(height, width)`, is one of them."""
    return len(made) == 2 and dilation[0] > 1 and made[1] >= _WIDE
