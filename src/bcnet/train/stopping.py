"""Early stopping: the end of a training that no longer improves on held-out inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True)
class BestEpoch:
    """The epoch of the lowest loss among the first `seen`, and its weights; 0 where none had a finite loss."""

    epoch: int = 0
    loss: float = math.inf
    seen: int = 0
    weights: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def after(self, network: nn.Module, loss: float, epochs: int) -> BestEpoch:
        """Return the best epoch so far, `loss` being the held-out loss of `network` after so many epochs."""
        if not loss < self.loss:
            return replace(self, seen=epochs)
        weights = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        return BestEpoch(epochs, loss, epochs, weights)

    def state(self) -> dict[str, Any]:
        """All but the weights, as plain values."""
        return {"epoch": self.epoch, "seen": self.seen, "loss": self.loss if self.epoch else None}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> BestEpoch:
        """Return what `state` and `weights` were taken from."""
        loss = math.inf if state["loss"] is None else float(state["loss"])
        return cls(int(state["epoch"]), loss, int(state["seen"]), weights)
