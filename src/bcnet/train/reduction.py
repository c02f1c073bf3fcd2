"""One step on several processes: a single sum brings gradients, losses and image counts together.

Notation: process `r` has `n_r` of the batch's `n` images (`n_r` may be 0), and from them the gradient `g_r` and the
losses `f_r` of their mean. The step on the whole batch has

    g = sum_r n_r g_r / n,    f = sum_r n_r f_r / n,    n = sum_r n_r

exactly, but for networks in which images meet: batch norm takes its statistics from each process's own images. A
parameter that no path used has no gradient, and gets none (zeros would still decay and coast): processes with images
take the same paths and know it, one without learns it from the others.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from bcnet.data.transfer import move
from bcnet.distributed import ProcessGroup


class Reduction:
    """Sums of one module's gradients over the processes of a world, in one flat buffer.

    The buffer holds `[n, classes, losses (terms,), used (parameters,), gradients]`, in fp32, and is kept between steps.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], world: ProcessGroup) -> None:
        self._world = world
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._buffer = torch.empty(0)

    def __call__(self, losses: torch.Tensor, images: int, classes: int) -> tuple[torch.Tensor, int]:
        """Losses `(terms,)` of the whole batch and the number of classes, given those of this process's `images`.

        The gradients are replaced in place. Of a process with 0 images nothing counts; it alone waits for the device.

        Raises:
            ProcessError: another process has gone.
        """
        if self._world.size == 1:
            return losses, classes
        head, gradients = self._sections(2 + len(losses) + len(self._parameters), losses.device)
        used = [float(parameter.grad is not None) for parameter in self._parameters]
        known = move(torch.tensor([1.0, classes, *used]), losses.device)  # in one go
        head.copy_(torch.cat([known[:2], losses, known[2:]]))
        slots = self._slots(gradients)
        for slot, parameter in zip(slots, self._parameters, strict=True):
            slot.zero_() if parameter.grad is None else slot.copy_(parameter.grad)
        self._buffer.mul_(images)
        self._world.add_up(self._buffer)
        self._buffer[1:].div_(head[0].clone())
        means = head[2 : 2 + len(losses)].clone()
        if not images:
            classes = round(float(head[1]))
            used = head[2 + len(losses) :].tolist()
        for slot, parameter, uses in zip(slots, self._parameters, used, strict=True):
            if uses:
                parameter.grad = torch.empty_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad.copy_(slot)
        return means, classes

    def _sections(self, head: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        size = head + sum(parameter.numel() for parameter in self._parameters)
        if len(self._buffer) != size:
            self._buffer = torch.empty(size, device=device)
        return self._buffer[:head], self._buffer[head:]

    def _slots(self, gradients: torch.Tensor) -> list[torch.Tensor]:
        """The part of `gradients` that each parameter has, in its shape."""
        parts = torch.split(gradients, [parameter.numel() for parameter in self._parameters])
        return [part.view(parameter.shape) for part, parameter in zip(parts, self._parameters, strict=True)]
