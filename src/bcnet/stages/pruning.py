"""The stage of a pruner: the trained original pruned by a tool of others, of which widths and channels are kept.

Final networks, the original too, learn from all training images, so that FastNAS scores its candidates on images which
the original has seen; it compares them with each other only. The test images take no part.
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
from bcnet.nests import Nest, call_network, take_images
from bcnet.progress.base import Advance
from bcnet.progress.forecast import Planned
from bcnet.pruners import Pruned, depgraph_pruned, fastnas_widths
from bcnet.run import names
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.stages.base import Context, Stage
from bcnet.stages.scores import network_score
from bcnet.stages.starting import CALIBRATION
from bcnet.train import derived_generator

_SCORES = "pruning_scores.json"


class PruningStage(Stage):
    """Comes to what the run's pruner leaves in the trained original; FastNAS says nothing of single channels.

    Raises:
        RecipeError: its package is not installed.
        BudgetError: it cannot reach the budget.
        ModelError: it cannot prune the network, or leaves widths that the space does not have.
    """

    name: ClassVar[str] = "pruning"
    file: ClassVar[str] = names.PRUNED
    needs: ClassVar[tuple[str, ...]] = ("original",)
    kind: ClassVar[str] = "pruning"

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """One network; how long that takes is the pruner's business."""
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
        """Widths, and the channels kept."""
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

    def batches(name: str) -> Iterator[tuple[Nest, Any]]:
        order = derived_generator(context.settings.training_seed, name)
        return ((move(x, device), move(y, device)) for x, y in workload.all_training.epoch(order))

    if method.criterion == "magnitude":
        return depgraph_pruned(network, workload.space, budget, example)
    if method.criterion == "taylor":
        task = workload.source.task
        again = chain.from_iterable(batches(f"taylor {epoch}") for epoch in count())

        def loss(pruned: nn.Module) -> Tensor:
            inputs, targets = next(again)
            return task.loss(call_network(pruned, inputs), targets)

        return depgraph_pruned(network, workload.space, budget, example, loss=loss)
    score = _Remembered(context, advance)
    first = take_images(example, slice(1))

    def calibration() -> Iterator[Nest]:
        return (x for x, _ in islice(batches("calibration"), CALIBRATION))

    return Pruned(fastnas_widths(network, workload.space, budget, first, calibration=calibration, score=score), ())


class _Remembered:
    """Scores of networks on the validation images, written down as they come: a pruner asks in the same order again.

    Only the first process asks, so that it alone reads and writes.
    """

    def __init__(self, context: Context, advance: Advance) -> None:
        self._context = context
        self._advance = advance
        self._file = context.directory.alone()
        known = self._file.read(_SCORES)["scores"] if self._file.has(_SCORES) else []
        self._scores = [float(score) for score in known]
        self._asked = 0

    def __call__(self, network: nn.Module) -> float:
        """The score of a network in eval mode, in the units of the run's metric."""
        if self._asked == len(self._scores):
            self._scores.append(network_score(self._context, network.eval()))
            self._file.write(_SCORES, {"scores": self._scores})
            self._advance(0, f"{len(self._scores)} networks scored")
        self._asked += 1
        return self._scores[self._asked - 1]
