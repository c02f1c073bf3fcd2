"""Early stopping: ends a training that no longer improves on held-out inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class EarlyStopping:
    """Ends a training after `patience` epochs without a new best, and keeps the weights of the best epoch.

    `loss(network)` returns the loss on held-out inputs in eval mode; it is called after each epoch, on rank 0 only.
    """

    patience: int
    loss: Callable[[nn.Module], float]


@dataclass(frozen=True)
class BestEpoch:
    """Epoch of the lowest loss among the first `seen`, and its weights; 0 if no loss was finite."""

    epoch: int = 0
    loss: float = math.inf
    seen: int = 0
    weights: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def best_after(self, network: nn.Module, loss: float, epochs: int) -> BestEpoch:
        """Return the best epoch so far, given the held-out `loss` of `network` after `epochs`."""
        if not loss < self.loss:
            return replace(self, seen=epochs)
        weights = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        return BestEpoch(epochs, loss, epochs, weights)

    def state(self) -> dict[str, Any]:
        """Return everything except the weights, as plain values."""
        return {"epoch": self.epoch, "seen": self.seen, "loss": self.loss if self.epoch else None}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> BestEpoch:
        """Return the best epoch from the result of `state` and its weights."""
        loss = math.inf if state["loss"] is None else float(state["loss"])
        return cls(int(state["epoch"]), loss, int(state["seen"]), weights)
