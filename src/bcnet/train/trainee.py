"""What can be trained: a supernet under a strategy, or a plain network as its own only path."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from bcnet.space import Side
from bcnet.train.counts import ChannelCounts
from bcnet.train.step import Path, Strategy, Term

if TYPE_CHECKING:
    from bcnet.supernet import Supernet


class Trainee(ABC):
    """A module, the paths a step takes through it, and how to run one."""

    module: nn.Module
    num_groups: int

    @abstractmethod
    def plan(self, generator: torch.Generator) -> tuple[Term, ...]:
        """The terms of the next step."""

    def trained(self, terms: tuple[Term, ...]) -> None:  # noqa: B027 - most have nothing to hear
        """Hear that a step of these terms has been taken."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint has to hold beside the module."""
        return {}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:  # noqa: B027 - nor to take back
        """Take back what `tensors` gave."""

    @abstractmethod
    def forward(self, x: torch.Tensor, path: Path) -> torch.Tensor:
        """Logits `(batch, classes)` of a path."""


class SupernetTrainee(Trainee):
    """A supernet, trained by the paths of a strategy. `counts` says how often each channel took part."""

    def __init__(self, supernet: Supernet, strategy: Strategy) -> None:
        self.module: nn.Module = supernet
        self.supernet = supernet
        self.strategy = strategy
        self.num_groups = len(supernet.space.groups)
        self.counts = ChannelCounts(supernet.space)

    def plan(self, generator: torch.Generator) -> tuple[Term, ...]:
        """What the strategy plans."""
        return self.strategy.plan(self.supernet.space, generator)

    def trained(self, terms: tuple[Term, ...]) -> None:
        """Count the channels of all paths."""
        self.counts.add(terms)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The counts."""
        return self.counts.tensors()

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on counting from there."""
        self.counts.restore(tensors)

    def forward(self, x: torch.Tensor, path: Path) -> torch.Tensor:
        """The path through the supernet."""
        logits: torch.Tensor = self.supernet(x, path.widths, path.side)
        return logits


class NetworkTrainee(Trainee):
    """A plain network: one path, no widths."""

    def __init__(self, network: nn.Module) -> None:
        self.module = network
        self.num_groups = 0

    def plan(self, generator: torch.Generator) -> tuple[Term, ...]:
        """The network itself."""
        return (Term((), (Path((), Side.LEFT),)),)

    def forward(self, x: torch.Tensor, path: Path) -> torch.Tensor:
        """The network's own forward."""
        logits: torch.Tensor = self.module(x)
        return logits
