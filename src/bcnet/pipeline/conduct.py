"""Conducting a run: its directory opened and locked, its threads set, its progress told, along one of the courses."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from bcnet.errors import RecipeError
from bcnet.pipeline.estimate import estimate
from bcnet.pipeline.machine import described, threads
from bcnet.pipeline.plan import stages_ahead
from bcnet.pipeline.progress import Reporter, Together
from bcnet.pipeline.record import RunRecord
from bcnet.pipeline.run_directory import RunDirectory
from bcnet.pipeline.settings import Settings
from bcnet.pipeline.stages import Context
from bcnet.pipeline.subject import Subject
from bcnet.pipeline.takeover import take_over

_T = TypeVar("_T")


def conduct(
    course: Callable[[Context], _T],
    subject: Subject,
    settings: Settings,
    path: Path,
    *,
    reporter: Reporter | None,
    checkpoint_seconds: float,
    stages: Collection[str] | None = None,
    take_from: Path | None = None,
) -> _T:
    """Follow a course in the run directory `path`; finished stages that `take_from` shares are taken over first.

    `stages` are those of the course, None where it has all.
    """
    with RunDirectory.open(path, settings) as directory, threads(settings.threads), RunRecord(path) as record:
        both = Together(reporter or Reporter(), record)
        context = Context(settings, subject, directory, both, checkpoint_seconds)
        if take_from is not None:
            take_over(take_from, context)
        planned = stages_ahead(settings, subject, {file.name for file in path.iterdir()})
        ahead = [stage for stage in planned if stages is None or stage.name in stages]
        both.plan(ahead)
        both.note(described(settings))
        expected = estimate(settings, subject, ahead)
        for line in expected.lines() if expected is not None else ():
            both.note(line)
        return course(context)


def check_seconds(value: Any) -> None:
    """Raise RecipeError unless `value` can be the seconds between checkpoints."""
    if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise RecipeError(f"checkpoint_seconds is a number of seconds, 0 or more; got {value!r}")
