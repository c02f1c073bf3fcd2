"""Conducting a run: its directory opened and locked, its threads set, its progress told, along one of the courses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bcnet.distributed import ProcessGroup
from bcnet.errors import RecipeError
from bcnet.machine.allocator import keeps_memory
from bcnet.machine.defaults import kept_primitives, threads
from bcnet.machine.devices import check_device
from bcnet.progress.base import Reporter, Together
from bcnet.progress.forecast import Planned
from bcnet.progress.run_record import RunRecord
from bcnet.run.directory import RunDirectory, read_settings
from bcnet.run.settings import Settings
from bcnet.run.subject import Source, Subject
from bcnet.stages.base import Context, Stage
from bcnet.stages.course import begin, stages_of
from bcnet.stages.estimate import estimate
from bcnet.stages.result import versions
from bcnet.stages.takeover import take_over
from bcnet.train import Recipe

_T = TypeVar("_T")


def conduct(
    course: Callable[[Context], _T],
    subject: Subject,
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
    """Follow a course in the run directory `path`; finished stages that the runs `take_from` share are taken over.

    `until` names the stages of the course, where it does not go to the end; `own` are stages of the user's. All
    processes of `world` follow it; the first one tells of it.
    """
    stages = stages_of(settings, own)
    with RunDirectory.open(path, settings, world) as directory, threads(settings.threads):
        if take_from:
            alone = Context(settings, subject, directory.alone(), reporter or Reporter(), ProcessGroup(), stages=stages)
            world.on_rank_zero(lambda: _taken_over(take_from, alone))
        if not world.is_rank_zero:
            return _followed(
                course, Context(settings, subject, directory, Reporter(), world, checkpoint_seconds, stages)
            )
        with RunRecord(path) as record:
            both = Together(reporter or Reporter(), record)
            ahead = planned(stages, settings, subject, {file.name for file in path.iterdir()}, until)
            both.plan(ahead)
            both.note(_machine(settings))
            if any(stage.unit == "steps" and not stage.finished for stage in ahead):
                both.note(f"Training: {_training(settings.supernet, settings.final)}.")
            space = subject.space
            if subject.budget.resolve(space.reference).admits(space.cost(space.full)):
                both.note(f"The budget, {subject.budget}, limits nothing: the widest network of the space holds it.")
            if settings.has_supernet and settings.strategy != "complementary":
                both.note(f"Strategy {settings.strategy} trains some channels more often than others.")
            expected = estimate(settings, subject, ahead)
            for line in expected.lines() if expected is not None else ():
                both.note(line)
            return _followed(course, Context(settings, subject, directory, both, world, checkpoint_seconds, stages))


def _followed(course: Callable[[Context], _T], context: Context) -> _T:
    begin(context)
    return course(context)


def planned(
    stages: Sequence[Stage], settings: Settings, subject: Subject, files: Collection[str], until: Collection[str] = ()
) -> list[Planned]:
    """The stages ahead in their order, those of `until` if any; those whose file is among `files` are finished."""
    plans = (stage.plan(settings, subject) for stage in stages if not until or stage.name in until)
    return [dataclasses.replace(plan, finished=plan.file in files) for plan in plans if plan is not None]


def resolved_settings(
    request: Settings, source: Source, path: Path, world: ProcessGroup, *, largest_activation: int = 0
) -> Settings:
    """The settings of a run as rank 0 completes them from what was left open, or from the run in `path`.

    `largest_activation` is as in `Settings.resolved`.

    Raises:
        ProcessError: not all processes have the same request, model, data and versions.
        RecipeError: the device is none that torch has here, or cannot compute in the precision.
    """

    def completed() -> dict[str, Any]:
        stored = read_settings(path) if (path / "settings.json").exists() else None
        return request.resolved(stored, largest_activation=largest_activation).model_dump(mode="json")

    world.check_same(request.flat() | {"images": source.data_digest} | versions())
    settings = Settings.model_validate(world.on_rank_zero(completed))
    assert settings.device is not None
    check_device(settings.device)
    return settings


def _taken_over(sources: Sequence[Path], alone: Context) -> None:
    for source in sources:
        take_over(source, alone)


def check_seconds(value: Any) -> None:
    """Raise RecipeError unless `value` can be the seconds between checkpoints."""
    if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise RecipeError(f"checkpoint_seconds is a number of seconds, 0 or more; got {value!r}")


def _training(supernet: Recipe, final: Recipe) -> str:
    """How long, in which batches and how fast the networks are trained, for people."""

    def told(recipe: Recipe) -> str:
        epochs = "1 epoch" if recipe.epochs == 1 else f"{recipe.epochs} epochs"
        return f"{epochs} in batches of {recipe.batch_size} at a rate of up to {recipe.lr:g}"

    if told(supernet) == told(final):
        return told(supernet)
    return f"supernet {told(supernet)}; final networks {told(final)}"


def _machine(settings: Settings) -> str:
    """One line on what resolved settings do with the machine, and what this process does."""
    count, precision = settings.threads, settings.supernet.precision
    parts = [
        f"{settings.device}, {count} CPU thread{'' if count == 1 else 's'}",
        precision if precision == settings.final.precision else f"{precision} ({settings.final.precision} at the end)",
        f"supernet weights {settings.layout.replace('_', '-')}",
        f"scores in batches of {settings.score_batch_size:,}",
        "freed memory kept" if keeps_memory() else "the system's allocator",
        f"{kept_primitives():,} operators cached",
    ]
    return f"Machine: {', '.join(parts)}."
