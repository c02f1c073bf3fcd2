"""Taking a bad step back.

Losses and gradients live on the device; to look at them the host has to wait for it. On a CPU that costs nothing, and
every step is looked at before the update. A GPU works ahead of its host, so there `LOOK_EVERY` steps are looked at
together: meanwhile the update of a bad step is undone on the device itself, by a flag that the host never sees, at the
price of one copy of the weights and of the optimiser's state. All tensors of a kind are copied, and taken back, by the
same few kernels: starting hundreds of them, two for each tensor, takes longer than the pass of a small network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

LOOK_EVERY = {"cpu": 1}
LOOK_EVERY_ELSEWHERE = 16
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32}  # integers as wide as an element; int64 are the others


def look_every(device: torch.device, *, scaled: bool) -> int:
    """Steps that are looked at together; one where a gradient scaler, which waits for the device anyway, is used."""
    return 1 if scaled else LOOK_EVERY.get(device.type, LOOK_EVERY_ELSEWHERE)


class Guard:
    """Remembers what a step changes in a module and its optimiser."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._module = module
        self._optimizer = optimizer
        self._buffers: list[torch.Tensor] = []

    def remember(self) -> None:
        """Remember the buffers: batch norm moves its running statistics in the forward pass already."""
        self._buffers = _copies([*self._module.buffers()])

    @torch.no_grad()
    def restore(self) -> None:
        """Put back the buffers remembered; for a step that was not followed by an update."""
        for buffer, before in zip(self._module.buffers(), self._buffers, strict=True):
            buffer.copy_(before)

    @contextmanager
    def undone_where(self, bad: torch.Tensor) -> Iterator[None]:
        """Undo the update inside, and the buffers' changes, where the flag `bad`, a scalar on the device, is set.

        The optimiser's state has to exist already.
        """
        changed = [*self._module.parameters(), *self._state(bad.device)]
        before = _copies(changed)
        yield
        _take_back([*changed, *self._module.buffers()], [*before, *self._buffers], bad)

    def _state(self, device: torch.device) -> list[torch.Tensor]:
        """The optimiser's tensors on the device; what it keeps elsewhere are counters of steps that it does not use."""
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
    """Put `before`, which is used up, in place of the tensors where the flag is set.

    Both are multiplied by 0 or 1 and added as the integers that their bits are: 0 times not-a-number is not 0.
    """
    for alike in _by_kind(tensors):
        kind = _BITS.get(tensors[alike[0]].itemsize, torch.int64)
        bits, old = ([part[i].detach().view(kind) for i in alike] for part in (tensors, before))
        torch._foreach_mul_(bits, (~bad).to(kind))
        torch._foreach_mul_(old, bad.to(kind))
        torch._foreach_add_(bits, old)


def _by_kind(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """The positions of the tensors, those of a type together: a kernel takes tensors of one."""
    kinds: dict[torch.dtype, list[int]] = {}
    for i, tensor in enumerate(tensors):
        kinds.setdefault(tensor.dtype, []).append(i)
    return [*kinds.values()]
