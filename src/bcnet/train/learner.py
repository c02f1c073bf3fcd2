"""Learners: a supernet under a strategy, or a plain network as its own only path."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from bcnet.machine.strides import UnitStrides
from bcnet.nests import Nest, call_network
from bcnet.space import Side
from bcnet.tasks import Classification, Task
from bcnet.train.counts import ChannelCounts
from bcnet.train.step import Pass, Path, Strategy, Term, alone

if TYPE_CHECKING:
    from bcnet.supernet import Supernet
    from bcnet.supernet.pairs import Pairs


class Learner(ABC):
    """A module, the paths a step takes through it, and how to run one.

    `task` says what its outputs are worth.
    """

    module: nn.Module
    num_groups: int
    task: Task = Classification()

    @property
    def network(self) -> nn.Module:
        """The module that takes inputs alone."""
        return self.module

    @abstractmethod
    def plan(self, generator: torch.Generator) -> tuple[Term, ...]:
        """The terms of the next step."""

    def count_step(self, terms: tuple[Term, ...]) -> None:  # noqa: B027 - most have nothing to hear
        """Hear that a step of these terms has been taken."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what a checkpoint has to hold beside the module."""
        return {}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:  # noqa: B027 - nor to take back
        """Take back what `tensors` gave."""

    def passes(self, paths: Sequence[Path]) -> Sequence[tuple[int, ...]]:
        """Divide paths into passes, by their positions."""
        return alone(paths)

    def teaches(self, paths: Pass) -> bool:
        """Return whether what a pass gives is what the later passes of its step learn."""
        return False

    @abstractmethod
    def forward(self, x: Nest, paths: Pass) -> tuple[torch.Tensor, ...]:
        """Logits `(batch, classes)` of every path of a pass."""


class SupernetLearner(Learner):
    """A supernet, trained by the paths of a strategy; with `pairs`, complementary paths share a pass.

    `counts` says how often each channel took part.
    """

    def __init__(self, supernet: Supernet, strategy: Strategy, pairs: Pairs | None = None) -> None:
        self.module: nn.Module = supernet
        self.supernet = supernet
        self.strategy = strategy
        self.pairs = pairs
        self.num_groups = len(supernet.space.groups)
        self.counts = ChannelCounts(supernet.space)

    @property
    def network(self) -> nn.Module:
        """The network at full width."""
        return self.supernet.network

    def plan(self, generator: torch.Generator) -> tuple[Term, ...]:
        """Return what the strategy plans."""
        return self.strategy.plan(self.supernet.space, generator)

    def teaches(self, paths: Pass) -> bool:
        """Return whether it is the path that the strategy says."""
        return paths == (self.strategy.teacher(self.supernet.space),)

    def count_step(self, terms: tuple[Term, ...]) -> None:
        """Count the channels of all paths."""
        self.counts.add(terms)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The counts."""
        return self.counts.tensors()

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on counting from there."""
        self.counts.restore(tensors)

    def passes(self, paths: Sequence[Path]) -> Sequence[tuple[int, ...]]:
        """A LEFT path with the first RIGHT one that is complementary to it, the others alone."""
        if self.pairs is None:
            return alone(paths)
        right = [i for i, path in enumerate(paths) if path.side is Side.RIGHT]
        divided: list[tuple[int, ...]] = []
        for i, path in enumerate(paths):
            if path.side is Side.LEFT:
                partner = next((j for j in right if self.pairs.complementary(path.widths, paths[j].widths)), None)
                divided.append((i,) if partner is None else (i, partner))
                if partner is not None:
                    right.remove(partner)
        return divided + [(j,) for j in right]

    def forward(self, x: Nest, paths: Pass) -> tuple[torch.Tensor, ...]:
        """A path through the supernet, or a pair of them."""
        if len(paths) == 2:
            assert self.pairs is not None
            left, right = paths
            pair: tuple[torch.Tensor, torch.Tensor] = self.pairs.forward(x, left.widths, right.widths)
            return pair
        return (self.supernet(x, paths[0].widths, paths[0].side),)


class NetworkLearner(Learner):
    """A plain network: one path, no widths."""

    def __init__(self, network: nn.Module, task: Task | None = None) -> None:
        self.module = network
        self.task = task or Classification()
        self.num_groups = 0
        self._strides = UnitStrides(network)

    def plan(self, generator: torch.Generator) -> tuple[Term, ...]:
        """The network itself."""
        return (Term((), (Path((), Side.LEFT),)),)

    def forward(self, x: Nest, paths: Pass) -> tuple[torch.Tensor, ...]:
        """The network's own forward."""
        with self._strides.apply():
            return (call_network(self.module, x),)
