"""What a run would be, without running it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bcnet.api.search import settle
from bcnet.distributed import joined
from bcnet.machine.defaults import threads
from bcnet.machine.disk import free_bytes
from bcnet.run.settings import Settings
from bcnet.run.subject import Subject
from bcnet.space import WidthSpace
from bcnet.stages.estimate import Estimate, estimate
from bcnet.stages.plan import stages_ahead
from bcnet.stages.room import search_bytes, training_bytes


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


def preview(model: Any, data: Any, *, run_dir: str | Path, **arguments: Any) -> Preview:
    """What `search` would do with the same arguments. Nothing is written.

    Raises:
        BCNetError: something that `search` would refuse.
    """
    path = Path(run_dir)
    with joined(arguments.get("device")) as world:
        subject, settings = settle(model, data, run_dir=path, world=world, **arguments)
    there = {file.name for file in path.iterdir()} if path.exists() else set()
    with threads(settings.threads):
        expected = estimate(settings, subject, stages_ahead(settings, subject, there))
    return Preview(settings, subject.space, expected, _disk(settings, subject), free_bytes(path))


def _disk(settings: Settings, subject: Subject) -> int:
    groups = len(subject.space.groups)
    steps = len(subject.training) * settings.supernet.epochs
    trainings = (
        training_bytes(subject.model, settings.supernet, 2 * steps, groups),
        training_bytes(subject.model, settings.final),
    )
    return sum(trainings) + search_bytes(settings.population * settings.generations, groups)
