"""Dry run: the stages that `search` would execute for the same arguments, and their cost."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bcnet.api.resolution import resolve
from bcnet.distributed import join_processes
from bcnet.machine.defaults import threads
from bcnet.machine.disk import free_bytes
from bcnet.run.directory import check_resumable, run_path
from bcnet.run.settings import RunOptions, Settings, make_section
from bcnet.run.workload import Workload
from bcnet.space import Budget, WidthSpace
from bcnet.stages.base import search_bytes, training_bytes
from bcnet.stages.estimate import Estimate, estimate
from bcnet.stages.plan import stages_of
from bcnet.stages.running import plan_stages
from bcnet.stages.search import candidates_of

_CLEARLY = 0.8  # one thread is recommended where it takes at most this share of the time


@dataclass(frozen=True)
class Preview:
    """Settings as they would be stored, the width space, and the estimated cost of the run.

    `estimate` is None if the run is finished. `one_thread` is the estimate for a single CPU thread, given if the number
    of threads is not set. `disk` is the peak disk usage of the run and `disk_free` the free disk space, in bytes.
    """

    settings: Settings
    space: WidthSpace
    estimate: Estimate | None
    disk: int
    disk_free: int
    one_thread: Estimate | None = None

    @property
    def threads_text(self) -> str:
        """Return a recommendation to use one thread, or "" if the default number of threads is as fast."""
        one, all_ = self.one_thread, self.estimate
        if one is None or all_ is None or one.total > _CLEARLY * all_.total:
            return ""
        usual = self.settings.options.threads
        return (
            f"One thread is {all_.total / one.total:.1f} times as fast here as the {usual} that torch takes: give "
            "--threads 1 (options={'threads': 1})."
        )


def preview(model: Any, data: Any, budget: Budget | None, run_dir: str | Path, **arguments: Any) -> Preview:
    """Return what `search` would do for the same arguments, without writing anything.

    Raises:
        BCNetError: an argument that `search` would refuse.
    """
    path = run_path(run_dir)
    with join_processes(make_section(RunOptions, arguments.get("options")).device) as world:
        workload, settings = resolve(model, data, budget, path, world=world, **arguments)
        world.on_rank_zero(lambda: check_resumable(path, settings))
    if not all(measure.countable for measure in workload.budget.limits):
        # A latency limit is resolved only after networks are timed; until then, plan for the widest choices.
        workload = dataclasses.replace(workload, budget=Budget(macs=1.0))
    there = {file.name for file in path.iterdir()} if path.exists() else set()
    planned = plan_stages(stages_of(settings), settings, workload, there)
    with threads(settings.options.threads):
        expected = estimate(settings, workload, planned)
    alone = None
    left_open = make_section(RunOptions, arguments.get("options")).threads is None
    if left_open and (settings.options.threads or 1) > 1 and settings.options.device in (None, "cpu"):
        with threads(1):
            alone = estimate(settings, workload, planned)
    return Preview(settings, workload.space, expected, _disk(settings, workload), free_bytes(path), alone)


def _disk(settings: Settings, workload: Workload) -> int:
    groups = len(workload.space.groups)
    recipe = settings.supernet_recipe
    steps = len(workload.training_batches) * recipe.epochs
    trainings = [training_bytes(workload.model, settings.training)]
    if settings.method.trains_supernet:
        trainings.append(training_bytes(workload.model, recipe, 2 * steps, groups))
    candidates = candidates_of(workload.source.own.searcher, settings) if settings.method.scores_candidates else 0
    return sum(trainings) + search_bytes(candidates, groups)
