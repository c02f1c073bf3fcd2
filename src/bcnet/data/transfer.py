"""From the host to the device without waiting for it."""

from __future__ import annotations

import torch

from bcnet.nests import Some, map_tensors


def move(nest: Some, device: torch.device | str) -> Some:
    """A tensor or several on `device`; a tensor itself where it is there already.

    A copy from ordinary memory to a GPU makes the host wait until all work before it is done. By way of pinned memory
    it takes its place in the queue, and the host goes on; torch keeps that memory until it has been read.
    """
    return map_tensors(lambda tensor: _move_tensor(tensor, torch.device(device)), nest)


def _move_tensor(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if tensor.device.type == "cpu" and device.type != "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
