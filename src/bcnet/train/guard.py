"""Undo failed training steps.

Losses and gradients are on the device, and reading them makes the host wait. On a CPU this costs nothing, and every
step is checked before its update. A GPU works ahead of its host, so there `LOOK_EVERY` steps are checked together.
Meanwhile the update of a failed step is undone on the device by a flag that the host does not read, at the cost of one
copy of the weights and the optimizer state. All tensors of a kind are copied and restored by the same few kernels,
since launching two kernels per tensor takes longer than a pass of a small network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

LOOK_EVERY = {"cpu": 1}
LOOK_EVERY_ELSEWHERE = 16
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32}  # integers as wide as an element; int64 otherwise


def look_every(device: torch.device, *, scaled: bool) -> int:
    """Return how many steps are checked together; 1 with a gradient scaler, which synchronises anyway."""
    return 1 if scaled else LOOK_EVERY.get(device.type, LOOK_EVERY_ELSEWHERE)


class Guard:
    """Stores what a step changes in a module and its optimizer."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._module = module
        self._optimizer = optimizer
        self._buffers: list[torch.Tensor] = []

    def remember(self) -> None:
        """Store the buffers; batch norm updates its statistics in the forward pass."""
        self._buffers = _copies([*self._module.buffers()])

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the stored buffers, after a step without update."""
        for buffer, before in zip(self._module.buffers(), self._buffers, strict=True):
            buffer.copy_(before)

    @contextmanager
    def undone_where(self, bad: torch.Tensor) -> Iterator[None]:
        """Undo the update in the block and the change of buffers if the flag `bad`, a scalar on the device, is set.

        The optimizer state must exist already.
        """
        changed = [*self._module.parameters(), *self._optimizer_state(bad.device)]
        before = _copies(changed)
        yield
        _take_back([*changed, *self._module.buffers()], [*before, *self._buffers], bad)

    def _optimizer_state(self, device: torch.device) -> list[torch.Tensor]:
        """Return the optimizer's tensors on the device; those elsewhere are unused step counters."""
        values = (value for state in self._optimizer.state.values() for value in state.values())
        return [value for value in values if isinstance(value, torch.Tensor) and value.device == device]


@torch.no_grad()
def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    copies = [torch.empty_like(tensor) for tensor in tensors]
    for alike in _by_kind(tensors):
        torch._foreach_copy_([copies[i] for i in alike], [tensors[i] for i in alike])
    return copies


@torch.no_grad()
def _take_back(tensors: Sequence[torch.Tensor], before: Sequence[torch.Tensor], bad: torch.Tensor) -> None:
    """Replace the tensors by `before` (which is overwritten) if the flag is set.

    Both are multiplied by 0 or 1 as integers of their bits and added, since 0 times NaN is not 0.
    """
    for alike in _by_kind(tensors):
        kind = _BITS.get(tensors[alike[0]].itemsize, torch.int64)
        bits, old = ([part[i].detach().view(kind) for i in alike] for part in (tensors, before))
        torch._foreach_mul_(bits, (~bad).to(kind))
        torch._foreach_mul_(old, bad.to(kind))
        torch._foreach_add_(bits, old)


def _by_kind(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Return the positions of the tensors grouped by dtype, since a kernel handles one dtype."""
    kinds: dict[torch.dtype, list[int]] = {}
    for i, tensor in enumerate(tensors):
        kinds.setdefault(tensor.dtype, []).append(i)
    return [*kinds.values()]
