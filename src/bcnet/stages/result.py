"""Result of a run, assembled from the outputs of its stages."""

from __future__ import annotations

import functools
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

import bcnet
from bcnet.costs import Cost
from bcnet.machine.devices import device_name
from bcnet.run.result import (
    NETWORKS,
    BudgetResult,
    DeviceResult,
    Ended,
    GroupWidths,
    NetworkResult,
    OwnFunctions,
    RescoredWidths,
    RunResult,
    ScoredWidths,
    SearchResults,
    TaskResult,
)
from bcnet.run.workload import Workload
from bcnet.searchers import SearchResult, heuristic_widths
from bcnet.space.problem import Problem
from bcnet.stages.base import Context
from bcnet.stages.final import TrainedNetwork
from bcnet.stages.finalists import Choice
from bcnet.stages.search import found_by
from bcnet.stages.trials import longer_epochs
from bcnet.tasks import Task


def result_of(context: Context) -> RunResult:
    """Return the result of a run whose stages are all finished."""
    space = context.workload.space
    settings = context.settings
    original, uniform, searched = (context.output(name) for name in NETWORKS.values())
    search = found_by(context)
    supernet_skipped = len(context.output("supernet")[1].skipped) if "supernet" in context.names else 0
    budget = context.workload.budget
    limits = budget.resolve(space.reference)
    return RunResult(
        model=settings.model,
        data=settings.data,
        class_names=tuple(context.workload.source.input.class_names),
        method=settings.method.name,
        origin=settings.method.origin,
        task=task_result(context.workload.source.task),
        budget=BudgetResult(
            macs=limits.macs,
            params=limits.params,
            given=str(budget),
            others={measure.description: limit for measure, limit in limits.others.items()},
        ),
        widths={g.name: w for g, w in zip(space.groups, searched.widths, strict=True)},
        networks={
            "original": _network(original, space.reference),
            "uniform": _network(uniform, space.reference),
            "searched": _network(searched, space.reference),
        },
        search=None if search is None else _search(context, context.output("finalists"), search),
        groups=tuple(
            GroupWidths(name=g.name, max_width=full, uniform=u, searched=w)
            for g, full, u, w in zip(space.groups, space.original_widths, uniform.widths, searched.widths, strict=True)
        ),
        measured_latency=context.output("timing") if "timing" in context.names else None,
        reliability=context.output("reliability") if "reliability" in context.names else None,
        epochs={"supernet": settings.supernet_recipe.epochs, "final": settings.training.epochs},
        skipped_steps={
            "supernet": supernet_skipped,
            "original": original.skipped,
            "uniform": uniform.skipped,
            "searched": searched.skipped,
        },
        stopped_early=_stopped_early(original, uniform, searched),
        start=settings.start,
        own=OwnFunctions(loss=settings.loss, score=settings.custom_score),
        seed=settings.seed,
        device=DeviceResult(
            name=device_name(settings.options.device or "cpu"),
            threads=settings.options.threads,
            processes=settings.options.processes,
        ),
        versions=versions(),
        seconds=context.directory.seconds(),
    )


def _search(context: Context, choice: Choice, found: SearchResult) -> SearchResults:
    settings = context.settings
    again = next(r for r in choice.rescored if r.candidate.widths == choice.widths)
    return SearchResults(
        metric=settings.metric,
        score=next(c.score for c in found.evaluations if c.widths == choice.widths),
        fresh_score=again.score,
        fresh_interval=(again.low, again.high),
        fresh_images=choice.fresh_images,
        finalist_epochs=longer_epochs(settings),
        evaluations=len(found.evaluations),
        rescored=tuple(
            RescoredWidths(widths=r.candidate.widths, score=r.candidate.score, fresh_score=r.score)
            for r in choice.rescored
        ),
        heuristics=_heuristics(context.workload, found, choice),
        notes=tuple(found.notes),
    )


def _heuristics(workload: Workload, found: SearchResult, choice: Choice) -> tuple[ScoredWidths, ...]:
    """Return the search's scores of the widths that need no search, as far as it scored them."""
    candidates = {c.widths: c for c in found.evaluations}
    again = {r.candidate.widths: r.score for r in choice.rescored}
    return tuple(
        ScoredWidths(
            name=name,
            widths=widths,
            score=candidates[widths].score,
            macs_ratio=candidates[widths].cost.macs / workload.space.reference.macs,
            fresh_score=again.get(widths),
        )
        for name, widths in heuristic_widths(Problem.of(workload.space, workload.budget)).items()
        if widths in candidates
    )


def _stopped_early(*networks: TrainedNetwork) -> dict[str, Ended]:
    """Return where early stopping ended the trainings."""
    ends = {trained.name: trained.ended for trained in networks if trained.ended is not None}
    return {name: Ended(epochs=epochs, best=best) for name, (epochs, best) in ends.items()}


def _network(trained: TrainedNetwork, reference: Cost) -> NetworkResult:
    return NetworkResult(
        widths=trained.widths,
        macs=trained.cost.macs,
        macs_ratio=trained.cost.macs / reference.macs,
        params=trained.cost.params,
        test=dict(trained.test.figures),
        test_errors=dict(trained.test.errors),
        test_images=trained.test.count,
        by_class=dict(trained.test.by_class),
        others=dict(trained.cost.others),
    )


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions that a result depends on, read once, since a checkout may change during the run."""
    commit = _commit()
    return {
        "python": platform.python_version(),
        "bcnet": metadata.version("bcnet"),
        **({} if commit is None else {"commit": commit}),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pymoo": metadata.version("pymoo"),
        "scipy": metadata.version("scipy"),
    }


def _commit() -> str | None:
    """Return the commit of this package if it runs from a checkout, marked if files differ from the commit."""
    package = Path(bcnet.__file__).parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(package), *words], capture_output=True, text=True, check=False)
        except OSError:  # git is not installed
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "__init__.py") is None:  # installed, perhaps inside the user's repository
        return None
    return f"{git('rev-parse', '--short', 'HEAD')}{'+changes' if git('status', '--porcelain', '--', '.') else ''}"


def task_result(task: Task) -> TaskResult:
    """Return the description of a task in documents."""
    return TaskResult(name=task.name, headline=task.headline)
