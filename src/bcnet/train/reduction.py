"""Gradient reduction over processes: one sum carries gradients, losses and image counts.

Notation: process `r` has `n_r` of the batch's `n` images (possibly 0), with gradient `g_r` and losses `f_r` of their
mean. The step on the whole batch has

    g = sum_r n_r g_r / n,    f = sum_r n_r f_r / n,    n = sum_r n_r

exactly, except for networks in which images interact: batch norm uses the statistics of each process's own images. A
parameter that no path used gets no gradient (zeros would still cause decay and momentum). Processes with images take
the same paths and know these parameters; a process without images learns them from the others.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from bcnet.data.transfer import move
from bcnet.distributed import ProcessGroup


class Reduction:
    """Sums of a module's gradients over the processes of a world, in one flat buffer.

    The buffer holds `[n, classes, losses (terms,), used (parameters,), gradients]` in fp32 and is reused between steps.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], world: ProcessGroup) -> None:
        self._world = world
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._buffer = torch.empty(0)

    def __call__(self, losses: torch.Tensor, images: int, classes: int) -> tuple[torch.Tensor, int]:
        """Return losses `(terms,)` of the whole batch and the number of classes, given those of `images` images here.

        Gradients are replaced in place. A process with 0 images contributes nothing, and it alone synchronises with the
        device.

        Raises:
            ProcessError: another process has ended.
        """
        if self._world.size == 1:
            return losses, classes
        head, gradients = self._sections(2 + len(losses) + len(self._parameters), losses.device)
        used = [float(parameter.grad is not None) for parameter in self._parameters]
        known = move(torch.tensor([1.0, classes, *used]), losses.device)  # one transfer
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
        """Return the part of `gradients` for each parameter, in its shape."""
        parts = torch.split(gradients, [parameter.numel() for parameter in self._parameters])
        return [part.view(parameter.shape) for part, parameter in zip(parts, self._parameters, strict=True)]
