"""Short digests that identify tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch


def digest_of(tensors: Mapping[str, torch.Tensor], text: str = "") -> str:
    """Return 12 hexadecimal digits for named tensors, in the order of their names, and some text."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]
