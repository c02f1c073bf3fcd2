"""Run the stages of a run: open and lock its directory, set threads, report progress."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from bcnet.data import DataSet
from bcnet.distributed import ProcessGroup
from bcnet.errors import RecipeError, RunError
from bcnet.machine.allocator import keeps_memory
from bcnet.machine.defaults import primitive_cache_size, threads
from bcnet.machine.devices import check_device
from bcnet.methods import SupernetMethod
from bcnet.methods.base import is_custom
from bcnet.progress.base import Reporter, Together
from bcnet.progress.forecast import Planned
from bcnet.progress.record import RunRecord
from bcnet.run import names
from bcnet.run.directory import RunDirectory, stored_settings
from bcnet.run.parts import augmentation_of
from bcnet.run.settings import Settings
from bcnet.run.subject import Fixed, Group, Subject, subject_of
from bcnet.run.workload import Source, Workload
from bcnet.stages.base import Context, Stage
from bcnet.stages.calibration import MEASURING, with_models
from bcnet.stages.estimate import estimate
from bcnet.stages.plan import stages_of
from bcnet.stages.result import task_result, versions
from bcnet.stages.reuse import reuse
from bcnet.train import Recipe

_T = TypeVar("_T")


def run_stages(
    outcome: Callable[[Context], _T],
    workload: Workload,
    settings: Settings,
    path: Path,
    world: ProcessGroup,
    *,
    reporter: Reporter | None,
    checkpoint_seconds: float,
    until: Collection[str] = (),
    take_from: Sequence[Path] = (),
    own: Sequence[Stage] = (),
) -> _T:
    """Run stages in the run directory `path` as `outcome` requests them, and return the outcome.

    `until` names the stages to run, if not all; `own` are the user's stages. Finished stages that the runs `take_from`
    share are reused. All processes of `world` make this call; rank 0 reports.

    """
    every = stages_of(settings, own)
    stages = tuple(stage for stage in every if not until or stage.name in {*until, *MEASURING})
    with RunDirectory.open(path, settings, world) as directory, threads(settings.options.threads):
        silent = Context(settings, workload, directory, Reporter(), world, checkpoint_seconds, stages)
        if take_from:
            alone = dataclasses.replace(
                silent,
                directory=directory.for_this_process(),
                reporter=reporter or Reporter(),
                world=ProcessGroup(),
                stages=every,
            )
            world.on_rank_zero(lambda: _reuse_all(take_from, alone))
        if not world.is_rank_zero:
            silent = with_models(silent)
            _begin(silent)
            return outcome(silent)
        with RunRecord(path) as record:
            context = with_models(dataclasses.replace(silent, reporter=Together(reporter or Reporter(), record)))
            _report_plan(context)
            _begin(context)
            return outcome(context)


def _report_plan(context: Context) -> None:
    """Report the remaining stages, the use of the machine, and remarks on the settings, before hours pass."""
    settings = context.settings
    workload = context.workload
    reporter = context.reporter
    there = {file.name for file in context.directory.path.iterdir()}
    ahead = plan_stages(context.stages, settings, workload, there)
    reporter.plan(ahead)
    reporter.note(_machine(settings))
    if any(stage.unit == "steps" and not stage.finished for stage in ahead):
        reporter.note(f"Training: {describe_training(settings)}.")
        if isinstance(workload.data, DataSet):
            augmentation = augmentation_of(settings.training, workload.data)
            reporter.note(f"Augmentation of training images: {augmentation}; `augmentation` in the recipe changes it.")
    space = workload.space
    # Such a run is allowed, since it compares trainings, but it is most likely a mistake.
    if workload.budget.resolve(space.reference).admits(space.cost(space.full)):
        reporter.note(f"The budget, {workload.budget}, is not binding: the full-width network already satisfies it.")
    if settings.space.note:
        reporter.note(settings.space.note)
    method = settings.method
    if isinstance(method, SupernetMethod) and method.strategy != "complementary":
        reporter.note(f"Strategy {method.strategy} trains some channels more often than others.")
    expected = estimate(settings, workload, ahead)
    for line in expected.lines() if expected is not None else ():
        reporter.note(line)


def plan_stages(
    stages: Sequence[Stage], settings: Settings, workload: Workload, files: Collection[str]
) -> list[Planned]:
    """Return the remaining stages in order; those whose file is among `files` are finished."""
    plans = (stage.plan(settings, workload) for stage in stages)
    return [dataclasses.replace(plan, finished=plan.file in files) for plan in plans if plan is not None]


def resolved_settings(
    request: Settings, source: Source, path: Path, world: ProcessGroup, *, largest_activation: int = 0
) -> Settings:
    """Return the settings of a run with unset values filled in by rank 0, or taken from the run in `path`.

    `largest_activation` is as in `Settings.resolved`.

    Raises:
        ProcessError: the processes differ in request, model, data or versions.
        RecipeError: torch does not have the device here, or it cannot compute in the precision.
    """

    def complete() -> dict[str, Any]:
        resolved = request.resolve(
            stored_settings(path),
            largest_activation=largest_activation,
            may_fork=source.may_fork,
            computes_in=cache(source.computes_in),
        )
        return resolved.model_dump(mode="json")

    world.check_same(request.flatten() | {"images": source.data_digest} | versions())
    settings = Settings.model_validate(world.on_rank_zero(complete))
    if is_custom(request.method):  # the document has the fields of a custom method, the request its code
        settings = settings.model_copy(update={"method": request.method})
    assert settings.options.device is not None
    check_device(settings.options.device)
    return settings


def _reuse_all(sources: Sequence[Path], alone: Context) -> None:
    for source in sources:
        reuse(source, alone)


def check_seconds(value: Any) -> None:
    """Raise RecipeError unless `value` is a valid number of seconds between checkpoints."""
    if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise RecipeError(f"checkpoint_seconds must be a number of seconds, 0 or more; got {value!r}")


def describe_training(settings: Settings) -> str:
    """Describe the training of the networks: epochs, batches and learning rate."""
    supernet = settings.supernet_recipe
    final = settings.training

    def describe(recipe: Recipe) -> str:
        epochs = "1 epoch" if recipe.epochs == 1 else f"{recipe.epochs} epochs"
        return f"{epochs} in batches of {recipe.batch_size} at a rate of up to {recipe.lr:g}"

    if describe(supernet) == describe(final):
        return describe(supernet)
    return f"supernet {describe(supernet)}; final networks {describe(final)}"


def _machine(settings: Settings) -> str:
    """Describe in one line how the run uses the machine."""
    options = settings.options
    precision = settings.supernet_recipe.precision
    final = settings.training.precision
    parts = [f"{options.device}, {options.threads} CPU thread{'' if options.threads == 1 else 's'}"]
    if settings.method.trains_candidates and options.side_by_side > 1:
        parts.append(f"{options.side_by_side} candidates at once")
    parts.append(precision if precision == final else f"{precision} ({final} at the end)")
    if settings.method.trains_supernet:
        parts.append(f"supernet weights {options.layout.replace('_', '-')}")
    parts.append(f"scores in batches of {options.score_batch_size:,}")
    parts.append("freed memory kept" if keeps_memory() else "the system's allocator")
    parts.append(f"{primitive_cache_size():,} operators cached")
    return f"Machine: {', '.join(parts)}."


def _begin(context: Context) -> None:
    """Report remarks on model and data, and record the run's workload."""
    left_out = context.workload.space.uncounted_note
    for note in (*context.workload.data.notes, *context.workload.source.notes, *([left_out] if left_out else ())):
        context.reporter.note(note)
    _record_workload(context)


def _record_workload(context: Context) -> None:
    """Record model and data; if they are recorded already, check that they have not changed.

    Raises:
        RunError: one of them has changed since the run started.
    """
    directory = context.directory
    now = _subject_of(context.workload)
    before = subject_of(directory.read(names.SPACE), directory.path) if directory.has(names.SPACE) else now
    for what, name, was, found in (
        ("model", context.settings.model, before.fingerprint, now.fingerprint),
        ("data", context.settings.data, before.images, now.images),
    ):
        if was != found:
            raise RunError(
                f"run directory {directory.path} was started with another {what} of the name {name!r}: it has "
                f"changed since (digest {was}, now {found}); put it back to go on, or give another --out"
            )
    directory.write(names.SPACE, now.model_dump(mode="json"))


def _subject_of(workload: Workload) -> Subject:
    space = workload.space
    return Subject(
        fingerprint=space.fingerprint(),
        images=workload.source.data_digest,
        input=workload.source.input.to_dict(),
        task=task_result(workload.source.task),
        macs=space.reference.macs,
        params=space.reference.params,
        others=dict(space.reference.others),
        original_widths=space.original_widths,
        groups=tuple(Group(**dataclasses.asdict(group)) for group in space.groups),
        fixed=tuple(Fixed(**dataclasses.asdict(dimension)) for dimension in space.fixed),
        layers=tuple(layer.to_dict() for layer in space.layers),
        uncounted=space.uncounted,
        live=tuple(terms.to_list() for terms in space.live_terms),
    )
