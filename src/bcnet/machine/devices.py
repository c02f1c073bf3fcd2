"""Compute devices, their names, and their floating-point precision."""

from __future__ import annotations

import contextlib
import platform
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

import torch

from bcnet.errors import RecipeError


def check_device(name: str) -> torch.device:
    """Return the device called `name`.

    Raises:
        RecipeError: torch does not have it here.
    """
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RecipeError(f"device must be one that torch has here, cpu or cuda; got {name!r}: {reason}") from None
    return device


def best_device() -> str:
    """Return "cuda" if torch finds a GPU, otherwise "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_name(device: str | torch.device) -> str:
    """Return the name of a GPU, or of the processor if the system reports it."""
    place = torch.device(device)
    if place.type == "cuda":
        return torch.cuda.get_device_name(place)
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else f"{platform.machine()} CPU"


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
