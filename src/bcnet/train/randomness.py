"""Randomness as a pure function of (seed, purpose, position).

Step `t` of a stage draws its widths from a generator seeded by (seed, stage, "widths", t), epoch `e` orders and
augments its images from (seed, stage, "data", e). Nothing random has to be stored to resume, and every process of a
distributed run draws the same widths without a word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derived_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part, equal in every process and version.

    Example: `derived_seed(0, "supernet", "widths", 12)`.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


def derived_generator(*parts: int | str) -> torch.Generator:
    """A CPU generator seeded by `derived_seed(*parts)`."""
    return torch.Generator().manual_seed(derived_seed(*parts))


@contextmanager
def own_global_randomness(device: torch.device) -> Iterator[None]:
    """Give the caller's global generators back unchanged: dropout and stochastic depth can draw from nothing else."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield
