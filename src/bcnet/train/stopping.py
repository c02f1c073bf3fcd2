"""Early stopping: the end of a training that no longer improves on held-out inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class EarlyStopping:
    """A training ends after `patience` epochs without a new best, and leaves the weights of the best epoch.

    `loss(network)` is the loss on held-out inputs, in eval mode; it is asked for after each epoch, on rank 0 alone.
    """

    patience: int
    loss: Callable[[nn.Module], float]


@dataclass
class BestEpoch:
    """The epoch of the lowest loss among the first `seen`, and its weights; 0 where none had a finite loss."""

    epoch: int = 0
    loss: float = math.inf
    seen: int = 0
    weights: dict[str, torch.Tensor] = field(default_factory=dict)

    def take(self, network: nn.Module, loss: float, epochs: int) -> None:
        """Take the held-out loss of `network` after so many epochs."""
        self.seen = epochs
        if loss < self.loss:
            self.epoch, self.loss = self.seen, loss
            self.weights = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}

    def state(self) -> dict[str, Any]:
        """All but the weights, as plain values."""
        return {"epoch": self.epoch, "seen": self.seen, "loss": self.loss if self.epoch else None}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> BestEpoch:
        """Return what `state` and `weights` were taken from."""
        loss = math.inf if state["loss"] is None else float(state["loss"])
        return cls(int(state["epoch"]), loss, int(state["seen"]), dict(weights))
