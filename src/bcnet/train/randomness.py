"""Randomness as a pure function of (seed, purpose, position).

Step `t` of a stage draws its widths from a generator seeded with (seed, stage, "widths", t). Epoch `e` orders and
augments its images with (seed, stage, "data", e). No random state has to be stored to resume, and all processes of a
distributed run draw the same widths without communication.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derived_seed(*parts: int | str) -> int:
    """Return a 63-bit seed that depends on every part, equal in every process and version.

    Example: `derived_seed(0, "supernet", "widths", 12)`.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


def derived_generator(*parts: int | str) -> torch.Generator:
    """Return a CPU generator seeded with `derived_seed(*parts)`."""
    return torch.Generator().manual_seed(derived_seed(*parts))


@contextmanager
def own_global_randomness(device: torch.device) -> Iterator[None]:
    """Restore the caller's global generators after the block, since dropout and stochastic depth draw from them."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield
