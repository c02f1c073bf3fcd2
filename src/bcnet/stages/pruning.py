"""The stage of a pruner: the trained original pruned by a tool of others, of which the widths are kept.

Final networks, the original too, learn from all training images, so that FastNAS scores its candidates on images which
the original has seen; it compares them with each other only. The test images take no part.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

from torch import nn

from bcnet.data.transfer import moved
from bcnet.errors import RunError
from bcnet.nests import Nest, taken
from bcnet.progress.base import Advance
from bcnet.progress.forecast import Planned
from bcnet.pruners import fastnas_widths, magnitude_widths
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.space import Widths
from bcnet.stages.base import Context, Stage
from bcnet.stages.scores import network_score
from bcnet.train import derived_generator

_SCORES = "pruning_scores.json"
_CALIBRATION = 20  # batches for the statistics of batch norm


class PruningStage(Stage):
    """Comes to the widths that the run's pruner leaves in the trained original.

    Raises:
        RecipeError: its package is not installed.
        BudgetError: it cannot reach the budget.
        ModelError: it cannot prune the network, or leaves widths that the space does not have.
    """

    name: ClassVar[str] = "pruning"
    file: ClassVar[str] = "pruned.json"
    needs: ClassVar[tuple[str, ...]] = ("original",)
    kind: ClassVar[str] = "pruning"

    def applies(self, settings: Settings) -> bool:
        """For the baselines that prune."""
        return settings.widths is None and settings.baseline in ("magnitude", "fastnas")

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """One network; how long that takes is the pruner's business."""
        return Planned(self.name, 1, "network", kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Prune a copy of the original."""
        space, network = context.workload.space, context.output("original").network
        with context.working(self.name, 1, "network") as advance:
            found = context.world.on_rank_zero(lambda: list(_pruned(context, network, advance)))
            advance(1, f"{space.cost(found).macs:,} MACs left")
        context.directory.write(self.file, {"widths": found})

    def load(self, context: Context) -> Widths:
        """The widths."""
        directory = context.directory
        try:
            widths = tuple(int(width) for width in directory.read(self.file)["widths"])
            context.workload.space.check(widths)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise RunError(f"{directory.file(self.file)} holds no widths of this network: start a new run") from None
        return widths


def _pruned(context: Context, network: nn.Module, advance: Advance) -> Widths:
    workload, budget = context.workload, context.workload.budget
    device = next(network.parameters()).device
    example = moved(workload.source.example(), device)
    if context.settings.baseline == "magnitude":
        return magnitude_widths(network, workload.space, budget, example)
    assert context.settings.baseline == "fastnas"

    def calibration() -> Iterator[Nest]:
        order = derived_generator(context.settings.seed_of_networks, "calibration")
        return (moved(x, device) for x, _ in islice(workload.all_training.epoch(order), _CALIBRATION))

    score = _Remembered(context, advance)
    first = taken(example, slice(1))
    return fastnas_widths(network, workload.space, budget, first, calibration=calibration, score=score)


class _Remembered:
    """Scores of networks on the validation images, written down as they come: a pruner asks in the same order again.

    Only the first process asks, so that it alone reads and writes.
    """

    def __init__(self, context: Context, advance: Advance) -> None:
        self._context, self._advance = context, advance
        self._file = context.directory.alone()
        known = self._file.read(_SCORES)["scores"] if self._file.has(_SCORES) else []
        self._scores, self._asked = [float(score) for score in known], 0

    def __call__(self, network: nn.Module) -> float:
        """The score of a network in eval mode, in the units of the run's metric."""
        if self._asked == len(self._scores):
            self._scores.append(network_score(self._context, network.eval()))
            self._file.write(_SCORES, {"scores": self._scores})
            self._advance(0, f"{len(self._scores)} networks scored")
        self._asked += 1
        return self._scores[self._asked - 1]
