"""Taking a bad step back.

Losses and gradients live on the device; to look at them the host has to wait for it. On a CPU that costs nothing, and
every step is looked at before the update. A GPU works ahead of its host, so there `LOOK_EVERY` steps are looked at
together: meanwhile the update of a bad step is undone on the device itself, by `torch.where` on a flag that the host
never sees, at the price of one copy of the weights and of the optimiser's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

LOOK_EVERY = {"cpu": 1}
LOOK_EVERY_ELSEWHERE = 16


def look_every(device: torch.device, *, scaled: bool) -> int:
    """Steps that are looked at together; one where a gradient scaler, which waits for the device anyway, is used."""
    return 1 if scaled else LOOK_EVERY.get(device.type, LOOK_EVERY_ELSEWHERE)


class Guard:
    """Remembers what a step changes in a module and its optimiser."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._module, self._optimizer = module, optimizer
        self._buffers: list[torch.Tensor] = []

    def remember(self) -> None:
        """Remember the buffers: batch norm moves its running statistics in the forward pass already."""
        self._buffers = [buffer.clone() for buffer in self._module.buffers()]

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
        before = [tensor.detach().clone() for tensor in changed]
        yield
        with torch.no_grad():
            for tensor, old in zip((*changed, *self._module.buffers()), (*before, *self._buffers), strict=True):
                torch.where(bad, old, tensor, out=tensor)

    def _state(self, device: torch.device) -> list[torch.Tensor]:
        """The optimiser's tensors on the device; what it keeps elsewhere are counters of steps that it does not use."""
        values = (value for state in self._optimizer.state.values() for value in state.values())
        return [value for value in values if isinstance(value, torch.Tensor) and value.device == device]
