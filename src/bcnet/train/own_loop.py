"""Supernet steps for a custom training loop, with its own batches, loss and optimizer.

Widths, paths and weights of losses are as in `bcnet.train.step`. The records that the prior is fitted to, and the
counts of trained channels, are kept too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bcnet.errors import TrainingError
from bcnet.tasks.base import scalar
from bcnet.train.randomness import derived_generator
from bcnet.train.records import ChannelCounts, LossRecords
from bcnet.train.step import Complementary, Pass, Strategy, Term, accumulate_gradients

if TYPE_CHECKING:
    from bcnet.supernet import Supernet


class SupernetSteps:
    """Computes gradients of a supernet's steps, for an optimizer over `supernet.parameters()`.

    Step `t` draws the same widths from `seed` whatever came before. `counts` records how often each channel was
    trained.

    Args:
        supernet: the supernet to train.
        strategy: the paths of a step; by default BCNet's four.
        seed: seed of the widths.

    Raises:
        TrainingError: no `Supernet`, or a strategy whose paths learn from each other's outputs, which a custom loop
            does not expose.

    Example:

        supernet = bcnet.Supernet(model, space)
        optimizer = torch.optim.SGD(supernet.parameters(), lr=0.1)
        steps = bcnet.SupernetSteps(supernet)
        for batch in loader:
            optimizer.zero_grad()
            steps.backward(lambda network: criterion(network(batch["image"]), batch["label"]))
            optimizer.step()
        records = steps.records
        prior = bcnet.learn_prior(space, records.steps, records.widths, records.losses, bcnet.Budget(macs=0.5))
    """

    def __init__(self, supernet: Supernet, strategy: Strategy | None = None, *, seed: int = 0) -> None:
        if not hasattr(supernet, "space"):
            raise TrainingError(
                f"supernet must be a bcnet.Supernet; got {type(supernet).__name__}: Supernet(model, space)"
            )
        self.supernet = supernet
        self.strategy = Complementary() if strategy is None else strategy
        if self.strategy.teacher(supernet.space) is not None:
            raise TrainingError(
                f"in a loop of your own every path learns from your loss; got {type(self.strategy).__name__}, whose "
                "paths learn from the full width: take another strategy, or bcnet.search"
            )
        self.seed = seed
        self.step = 0
        self.counts = ChannelCounts(supernet.space)
        self._records = LossRecords(len(supernet.space.groups))
        self._waiting: list[tuple[int, tuple[Term, ...], Tensor]] = []  # losses still on the device

    def backward(
        self, loss_of: Callable[[nn.Module], Tensor], *, backward: Callable[[Tensor], object] = Tensor.backward
    ) -> Tensor:
        """Add this step's gradients to the parameters, one path after the other.

        Args:
            loss_of: returns your loss, a scalar, of a network on your batch. It is called once per path, with the model
                at that path's widths, in the training mode that you have set.
            backward: replaces `loss.backward()`: `lambda loss: scaler.scale(loss).backward()`, or
                `self.manual_backward` in Lightning.

        Returns:
            The mean loss of the step's paths, a scalar on the device, without a graph.

        Raises:
            TrainingError: a loss that is not a scalar.
        """
        generator = derived_generator(self.seed, "own loop", "widths", self.step)
        terms = self.strategy.plan(self.supernet.space, generator)

        def losses(paths: Pass) -> list[Tensor]:
            found = []
            for path in paths:
                with self.supernet.at(path.widths, path.side) as network:
                    found.append(scalar(loss_of(network)))
            return found

        means = accumulate_gradients(terms, losses, backward)  # (terms,)
        self._waiting.append((self.step, terms, means))
        self.counts.add(terms)
        self.step += 1
        return means.mean()

    @property
    def records(self) -> LossRecords:
        """Return widths and mean losses of all steps so far; `skipped` lists steps whose loss was not finite."""
        if self._waiting:
            values = torch.stack([means for _, _, means in self._waiting]).tolist()  # synchronises with the device
            for (step, terms, _), losses in zip(self._waiting, values, strict=True):
                if not all(map(math.isfinite, losses)):
                    self._records.skipped = (*self._records.skipped, step)
                    continue
                for term, loss in zip(terms, losses, strict=True):
                    self._records.append(step, term.recorded, loss)
            self._waiting.clear()
        return self._records

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the steps, for a checkpoint that also holds weights and optimizer."""
        return {"step": self.step, "records": self.records.tensors(), "counts": self.counts.tensors()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state_dict`.

        Raises:
            RunError: it belongs to another network.
        """
        self.counts.restore(state["counts"])
        self._records = LossRecords.from_tensors(state["records"])
        self.step = int(state["step"])
        self._waiting.clear()
