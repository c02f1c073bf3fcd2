"""Which device to compute on."""

from __future__ import annotations

import torch

from bcnet.errors import RecipeError


def check_device(name: str) -> torch.device:
    """The device called `name`.

    Raises:
        RecipeError: torch has no such device here.
    """
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RecipeError(f"device must be one that torch has here, cpu or cuda; got {name!r}: {reason}") from None
    return device


def best_device() -> str:
    """A GPU where torch sees one, else the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"
