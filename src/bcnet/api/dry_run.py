"""A dry run: the steps of `search` for the same arguments, and their price."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bcnet.api.resolution import resolve
from bcnet.distributed import join_processes
from bcnet.machine.defaults import threads
from bcnet.machine.disk import free_bytes
from bcnet.run.settings import RunOptions, Settings, make_section
from bcnet.run.workload import Workload
from bcnet.space import Budget, WidthSpace
from bcnet.stages.estimate import Estimate, estimate
from bcnet.stages.plan import stages_of
from bcnet.stages.room import search_bytes, training_bytes
from bcnet.stages.running import plan_stages
from bcnet.stages.search import candidates_of


@dataclass(frozen=True)
class Preview:
    """Settings as they would be stored, the width space, and what the run would take.

    `estimate` is None where the run is finished. `disk` is what the run holds on disk at most, `disk_free` what there
    is, in bytes.
    """

    settings: Settings
    space: WidthSpace
    estimate: Estimate | None
    disk: int
    disk_free: int


def preview(model: Any, data: Any, budget: Budget | None, run_dir: str | Path, **arguments: Any) -> Preview:
    """Return what `search` would do with the same arguments. Nothing is written.

    Raises:
        BCNetError: something that `search` would refuse.
    """
    path = Path(run_dir)
    with join_processes(make_section(RunOptions, arguments.get("options"), "options").device) as world:
        workload, settings = resolve(model, data, budget, path, world=world, **arguments)
    if not all(measure.countable for measure in workload.budget.limits):
        # What widths a latency admits is known once networks are timed: what the widest need is the most.
        workload = dataclasses.replace(workload, budget=Budget(macs=1.0))
    there = {file.name for file in path.iterdir()} if path.exists() else set()
    with threads(settings.options.threads):
        expected = estimate(settings, workload, plan_stages(stages_of(settings), settings, workload, there))
    return Preview(settings, workload.space, expected, _disk(settings, workload), free_bytes(path))


def _disk(settings: Settings, workload: Workload) -> int:
    groups = len(workload.space.groups)
    recipe = settings.supernet_recipe
    steps = len(workload.training_batches) * recipe.epochs
    trainings = [training_bytes(workload.model, settings.training)]
    if settings.method.trains_supernet:
        trainings.append(training_bytes(workload.model, recipe, 2 * steps, groups))
    candidates = candidates_of(workload.source.own.searcher, settings) if settings.method.scores_candidates else 0
    return sum(trainings) + search_bytes(candidates, groups)
