"""Floating-point precision of a device."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Literal

import torch

from bcnet.errors import RecipeError

Precision = Literal["auto", "fp32", "bf16", "fp16"]


def resolve_precision(requested: Precision, device: torch.device) -> Precision:
    """Return the precision for `requested` on the device; never "auto".

    "auto" is bf16 on GPUs from Ampere and CPUs with AMX, fp16 on older GPUs, and fp32 on other CPUs.

    Raises:
        RecipeError: fp16 on a CPU, which has no gradient scaling.
    """
    if requested == "fp16" and device.type == "cpu":
        raise RecipeError("precision fp16 needs a GPU; got a CPU: take bf16, fp32 or auto")
    if requested != "auto":
        return requested
    if device.type == "cuda":
        return "bf16" if torch.cuda.get_device_capability(device)[0] >= 8 else "fp16"
    if device.type == "cpu" and torch.cpu._is_amx_tile_supported():
        return "bf16"
    return "fp32"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the context for forward passes at a resolved precision."""
    if precision == "fp32":
        return contextlib.nullcontext()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    return torch.autocast(device.type, dtype=dtype)
