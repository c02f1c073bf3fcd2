"""What can be trained: a supernet under a strategy, or a plain network as its own only path."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import nn

from bcnet.space import Side
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

    @abstractmethod
    def forward(self, x: torch.Tensor, path: Path) -> torch.Tensor:
        """Logits `(batch, classes)` of a path."""


class SupernetTrainee(Trainee):
    """A supernet, trained by the paths of a strategy."""

    def __init__(self, supernet: Supernet, strategy: Strategy) -> None:
        self.module: nn.Module = supernet
        self.supernet = supernet
        self.strategy = strategy
        self.num_groups = len(supernet.space.groups)

    def plan(self, generator: torch.Generator) -> tuple[Term, ...]:
        """What the strategy plans."""
        return self.strategy.plan(self.supernet.space, generator)

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
