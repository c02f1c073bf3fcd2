"""Learners: a supernet with a strategy, or a plain network as its only path."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from bcnet.machine.onednn import UnitStrides
from bcnet.pytree import Pytree, call_model
from bcnet.space import Side
from bcnet.tasks import Classification, Task
from bcnet.train.records import ChannelCounts
from bcnet.train.step import Pass, Path, Strategy, Term, separate_passes

if TYPE_CHECKING:
    from bcnet.supernet import Supernet
    from bcnet.supernet.pairs import Pairs


class Learner(ABC):
    """A module, the paths of each step through it, and how to run them.

    `task` computes losses and metrics from its outputs.
    """

    module: nn.Module
    num_groups: int
    task: Task = Classification()

    @property
    def network(self) -> nn.Module:
        """Module that takes inputs alone."""
        return self.module

    @abstractmethod
    def plan(self, generator: torch.Generator) -> tuple[Term, ...]:
        """Return the terms of the next step."""

    def count_step(self, terms: tuple[Term, ...]) -> None:  # noqa: B027 - most learners count nothing
        """Called after a step of these terms."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors that a checkpoint needs besides the module."""
        return {}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:  # noqa: B027 - most learners store nothing
        """Restore the result of `tensors`."""

    def passes(self, paths: Sequence[Path]) -> Sequence[tuple[int, ...]]:
        """Group paths into passes, by index."""
        return separate_passes(paths)

    def teaches(self, paths: Pass) -> bool:
        """Return whether the outputs of a pass are the targets of the later passes of its step."""
        return False

    @abstractmethod
    def forward(self, x: Pytree, paths: Pass) -> tuple[torch.Tensor, ...]:
        """Return logits `(batch, classes)` of every path of a pass."""


class SupernetLearner(Learner):
    """A supernet, trained on the paths of a strategy; with `pairs`, complementary paths share a pass.

    `counts` records how often each channel was trained.
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
        """Network at full width."""
        return self.supernet.network

    def plan(self, generator: torch.Generator) -> tuple[Term, ...]:
        """Return the strategy's terms."""
        return self.strategy.plan(self.supernet.space, generator)

    def teaches(self, paths: Pass) -> bool:
        """Return whether it is the strategy's teacher path."""
        return paths == (self.strategy.teacher(self.supernet.space),)

    def count_step(self, terms: tuple[Term, ...]) -> None:
        """Count the channels of all paths."""
        self.counts.add(terms)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the counts."""
        return self.counts.tensors()

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue from the counts."""
        self.counts.restore(tensors)

    def passes(self, paths: Sequence[Path]) -> Sequence[tuple[int, ...]]:
        """Group a LEFT path with the first RIGHT path complementary to it; all others alone."""
        if self.pairs is None:
            return separate_passes(paths)
        right = [i for i, path in enumerate(paths) if path.side is Side.RIGHT]
        divided: list[tuple[int, ...]] = []
        for i, path in enumerate(paths):
            if path.side is Side.LEFT:
                partner = next((j for j in right if self.pairs.complementary(path.widths, paths[j].widths)), None)
                divided.append((i,) if partner is None else (i, partner))
                if partner is not None:
                    right.remove(partner)
        return divided + [(j,) for j in right]

    def forward(self, x: Pytree, paths: Pass) -> tuple[torch.Tensor, ...]:
        """Run a path of the supernet, or a pair of paths."""
        if len(paths) == 2:
            assert self.pairs is not None
            left, right = paths
            pair: tuple[torch.Tensor, torch.Tensor] = self.pairs.forward(x, left.widths, right.widths)
            return pair
        return (self.supernet(x, paths[0].widths, paths[0].side),)


class NetworkLearner(Learner):
    """A plain network: one path, without widths."""

    def __init__(self, network: nn.Module, task: Task | None = None) -> None:
        self.module = network
        self.task = task or Classification()
        self.num_groups = 0
        self._strides = UnitStrides(network)

    def plan(self, generator: torch.Generator) -> tuple[Term, ...]:
        """Return the network itself as the only path."""
        return (Term((), (Path((), Side.LEFT),)),)

    def forward(self, x: Pytree, paths: Pass) -> tuple[torch.Tensor, ...]:
        """Run the network."""
        with self._strides.apply():
            return (call_model(self.module, x),)
