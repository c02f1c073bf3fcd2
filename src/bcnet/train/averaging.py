"""Moving averages of weights, by torch's own `AveragedModel`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


def moving_average(module: nn.Module, decay: float) -> AveragedModel:
    """An average of the weights of a module, and of its buffers, that keeps `decay` of itself at each update.

    After the first ones it keeps less, `(1 + n) / (10 + n)` after `n` of them, so that a training of a few hundred
    steps does not end near its start.
    """
    return AveragedModel(module, multi_avg_fn=_towards(decay), use_buffers=True)


def _towards(decay: float) -> Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]:
    @torch.no_grad()
    def update(averages: Sequence[Tensor], weights: Sequence[Tensor], updates: Any) -> None:
        if not averages[0].is_floating_point():  # counts of batches
            for average, now in zip(averages, weights, strict=True):
                average.copy_(now)
            return
        kept = torch.clamp((1 + updates) / (10 + updates), max=decay)
        for average, now in zip(averages, weights, strict=True):
            average.lerp_(now, (1 - kept).to(average.dtype))

    return update
