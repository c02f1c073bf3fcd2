"""What a run does with the machine it is on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch compute with `count` CPU threads inside the block; None leaves it as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
