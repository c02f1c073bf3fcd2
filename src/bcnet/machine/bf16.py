"""Strided convolutions of maps that are narrower than the stride, whose weight gradient is wrong in bf16.

On processors with AVX-512, oneDNN leaves the columns of the kernel that meet nothing but padding as they are in memory
instead of zero (oneDNN 3.12 in torch 2.13, `brgconv_bwd_w`, `backward_weights`); in fp32 they are right. Residual
networks for large images have such layers where the images are small: of 16 pixels nothing but one is left before the
last stage of ResNet-18.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class WrongInBf16(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Finds such convolutions among the operators of a block; `found` says whether there were any."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and look at its sizes where it is a convolution."""
        output = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution.default:
            x, _, _, stride, _, _, transposed, *_ = args
            map_ = output if transposed else x  # what the strided side of the convolution has
            self.found |= x.dtype == torch.bfloat16 and map_.shape[-1] < stride[-1]
        return output
