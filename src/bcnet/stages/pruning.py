"""Stage of a pruner: prunes the trained original with an external tool, and keeps the widths and channels that result.

All final networks, including the original, train on all training images. FastNAS therefore scores its candidates on
images that the original has seen, but compares them only with each other. The test images are not used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import chain, count, islice
from typing import Any, ClassVar

from torch import Tensor, nn

from bcnet.data.transfer import move
from bcnet.errors import RunError
from bcnet.methods import Pruned as PrunedMethod
from bcnet.progress.base import Advance
from bcnet.progress.forecast import Planned
from bcnet.pruners import Pruned, depgraph_pruned, fastnas_widths
from bcnet.pytree import Pytree, call_model, slice_batch
from bcnet.run import names
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.stages.base import Context, Stage
from bcnet.stages.scores import network_score
from bcnet.stages.starting import CALIBRATION
from bcnet.train import derived_generator

_SCORES = "pruning_scores.json"


class PruningStage(Stage):
    """Stage that runs the run's pruner on the trained original; FastNAS does not report channels.

    Raises:
        RecipeError: the pruner's package is not installed.
        BudgetError: the pruner cannot reach the budget.
        ModelError: the pruner cannot handle the network, or returns widths that the space does not have.
    """

    name: ClassVar[str] = "pruning"
    file: ClassVar[str] = names.PRUNED
    needs: ClassVar[tuple[str, ...]] = ("original",)
    kind: ClassVar[str] = "pruning"

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """One network; the duration depends on the pruner."""
        return Planned(self.name, 1, "network", kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Prune a copy of the original."""
        space = context.workload.space
        network = context.output("original").network
        with context.work(self.name, 1, "network") as advance:
            found = context.world.on_rank_zero(lambda: dataclasses.asdict(_prune(context, network, advance)))
            advance(1, f"{space.cost(found['widths']).macs:,} MACs left")
        context.directory.write(self.file, found)

    def load(self, context: Context) -> Pruned:
        """Return widths and kept channels."""
        directory = context.directory
        space = context.workload.space
        try:
            document = directory.read(self.file)
            widths = tuple(int(width) for width in document["widths"])
            kept = tuple(tuple(int(channel) for channel in group) for group in document["kept"])
            space.check(widths)
            for channels, group in zip(kept, space.groups, strict=bool(kept)):
                if not {*channels} <= {*range(group.max_width)}:
                    raise ValueError(f"channels {channels} of group {group.name}")
        except (KeyError, TypeError, ValueError, OverflowError):
            raise RunError(f"{directory.file(self.file)} holds no widths of this network: start a new run") from None
        return Pruned(widths, kept)


def _prune(context: Context, network: nn.Module, advance: Advance) -> Pruned:
    workload = context.workload
    budget = context.workload.budget
    method = context.settings.method
    assert isinstance(method, PrunedMethod), "only such a method has this stage"
    device = next(network.parameters()).device
    example = move(workload.source.example(), device)

    def batches(name: str) -> Iterator[tuple[Pytree, Any]]:
        order = derived_generator(context.settings.training_seed, name)
        return ((move(x, device), move(y, device)) for x, y in workload.all_training.epoch(order))

    if method.criterion == "magnitude":
        return depgraph_pruned(network, workload.space, budget, example)
    if method.criterion == "taylor":
        task = workload.source.task
        again = chain.from_iterable(batches(f"taylor {epoch}") for epoch in count())

        def loss(pruned: nn.Module) -> Tensor:
            inputs, targets = next(again)
            return task.loss(call_model(pruned, inputs), targets)

        return depgraph_pruned(network, workload.space, budget, example, loss=loss)
    score = _Remembered(context, advance)
    first = slice_batch(example, slice(1))

    def calibration() -> Iterator[Pytree]:
        return (x for x, _ in islice(batches("calibration"), CALIBRATION))

    return Pruned(fastnas_widths(network, workload.space, budget, first, calibration=calibration, score=score), ())


class _Remembered:
    """Scores of networks on the validation images, stored as they are computed, in the pruner's fixed order.

    Only the first process computes, reads and writes scores.
    """

    def __init__(self, context: Context, advance: Advance) -> None:
        self._context = context
        self._advance = advance
        self._file = context.directory.for_this_process()
        known = self._file.read(_SCORES)["scores"] if self._file.has(_SCORES) else []
        self._scores = [float(score) for score in known]
        self._asked = 0

    def __call__(self, network: nn.Module) -> float:
        """Return the score of a network in eval mode, in the units of the run's metric."""
        if self._asked == len(self._scores):
            self._scores.append(network_score(self._context, network.eval()))
            self._file.write(_SCORES, {"scores": self._scores})
            self._advance(0, f"{len(self._scores)} networks scored")
        self._asked += 1
        return self._scores[self._asked - 1]
