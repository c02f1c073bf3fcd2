"""Compute devices and their names."""

from __future__ import annotations

import platform
from pathlib import Path

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
