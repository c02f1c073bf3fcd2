"""Memory of a run, required and available.

A training step holds weights, gradients, optimizer state and, for one path at a time, the tensors saved for its
backward pass. PyTorch passes these to `saved_tensors_hooks`, so a pass over a few images gives the size for a batch.
The backward pass of a layer additionally holds the gradients of its input and output. Scoring holds a layer's input,
output and temporary tensors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from bcnet.pytree import Pytree, call_model, count

_TRANSIENT = 2  # largest tensors besides the saved ones in a backward pass
_SCORING = 3  # largest tensors at once in a forward pass


@dataclass(frozen=True)
class Activations:
    """Bytes per image: of all tensors saved for the backward pass, and of the largest."""

    saved: float
    largest: float

    def training_bytes(self, batch: int) -> float:
        """Return the bytes of a training step on a batch besides weights and state."""
        return batch * (self.saved + _TRANSIENT * self.largest)

    def scoring_bytes(self, batch: int) -> float:
        """Return the bytes of a forward pass over a batch."""
        return batch * _SCORING * self.largest


def activations(module: nn.Module, loss: Callable[[], torch.Tensor], images: int) -> Activations:
    """Return the activations saved by a pass that computes `loss()` on a number of images."""
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = loss()
    del result
    return Activations(sum(saved.values()) / images, max(saved.values(), default=0) / images)


@torch.no_grad()
def largest_activation(model: nn.Module, example: Pytree) -> int:
    """Return the bytes of the largest output of any module, for one image of the inputs `example`."""
    largest = 0

    def record(part: nn.Module, given: object, output: object) -> None:
        nonlocal largest
        if isinstance(output, torch.Tensor):
            largest = max(largest, output.nbytes // count(example))

    handles = [part.register_forward_hook(record) for part in model.modules()]
    try:
        call_model(model, example)
    finally:
        for handle in handles:
            handle.remove()
    return largest


def used_bytes(device: torch.device) -> int:
    """Return the memory that this process uses now."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def free_bytes(device: torch.device) -> int | None:
    """Return the memory available to this process; None if the system does not report it."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = [value for value in (_available_bytes(), _left_in_group()) if value is not None]
    return min(known) if known else None


def _available_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def _left_in_group(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory left in a container's limit (cgroups, version 2)."""
    try:
        return int((root / "memory.max").read_text()) - int((root / "memory.current").read_text())
    except (OSError, ValueError):  # "max" means no limit
        return None
