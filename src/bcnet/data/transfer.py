"""Copies from host to device without waiting."""

from __future__ import annotations

import torch

from bcnet.pytree import Some, map_tensors


def move(tree: Some, device: torch.device | str) -> Some:
    """Return one or several tensors on `device`; a tensor that is already there is returned itself.

    A copy from pageable memory to a GPU makes the host wait for all earlier work. A copy from pinned memory is queued,
    and the host continues; torch keeps the memory until it has been read.
    """
    return map_tensors(lambda tensor: _move_tensor(tensor, torch.device(device)), tree)


def _move_tensor(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if tensor.device.type == "cpu" and device.type != "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
