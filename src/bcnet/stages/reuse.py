"""Reuse of finished stages of another run.

A stage depends on some of the settings. If two runs agree on these, their outputs are equal bit for bit. Its files are
checked against the run they come from and written again with the marks of this run, so that a run is described by its
settings alone and its result is the same as without reuse.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bcnet.errors import RunError
from bcnet.run import names
from bcnet.run.directory import RunDirectory, read_settings, run_path
from bcnet.run.settings import Settings
from bcnet.run.subject import subject_of
from bcnet.stages.base import Context, Stage
from bcnet.stages.plan import stages_of

SHARED = (
    *("model", "data", "task", "seed", "loss", "pretrained", "own_stages", "space."),
    *("options.image_size", "options.threads", "options.device", "options.processes"),
)
"""Settings that every stage depends on: model, data, seed, space and machine."""


def is_shared(stage: Stage, theirs: Settings, ours: Settings) -> bool:
    """Return whether runs with these two settings share a stage."""
    a = theirs.identity()
    b = ours.identity()
    read = (*SHARED, *stage.reads(theirs), *stage.reads(ours))
    # Data are compared by digest (`_check_subject`); their location may differ.
    return all(a.get(key) == b.get(key) for key in {*a, *b} if key.startswith(read) and key != "data")


def other_runs(runs: Sequence[str | os.PathLike[str]], run_dir: Path) -> list[Path]:
    """Return the directories among `runs` other than `run_dir`.

    Raises:
        RunError: one is not a run directory.
    """
    paths = [run_path(run) for run in runs]
    for path in paths:
        read_settings(path)
    return [path for path in paths if path.resolve() != run_dir.resolve()]


def reuse(source: Path, context: Context) -> tuple[str, ...]:
    """Copy the finished stages that the run in `source` shares with this one and that are missing here.

    Returns:
        The names of the copied stages.

    Raises:
        RunError: the files of `source` are corrupt, or its model or data have changed under the same names.
    """
    theirs = RunDirectory(source, read_settings(source))
    ours = context.directory
    _check_subject(theirs, context)
    known = {*(stage.name for stage in stages_of(theirs.settings)), *theirs.settings.own_stages}
    taken = []
    for stage in context.stages:
        here = stage.name in known and is_shared(stage, theirs.settings, context.settings)
        if here and stage.is_in(theirs) and not stage.is_in(ours) and stage.agrees(theirs, context):
            stage.reuse(theirs, context)
            # Times of a copied stage count towards the result.
            took = {name: seconds for name, seconds in theirs.seconds().items() if name in stage.timed_as}
            ours.write(names.SECONDS, ours.seconds() | took)
            taken.append(stage.name)
    if taken:
        context.reporter.note(f"reused from {source}: {', '.join(taken)}")
    else:
        same_data = context.settings.model_copy(update={"data": theirs.settings.data})
        difference = same_data.first_difference(theirs.settings)
        why = "its stages are not finished" if difference is None else f"its {difference[0]} is {difference[2]!r}"
        context.reporter.note(f"Nothing is reused from {source}: {why}.")
    return tuple(taken)


def _check_subject(theirs: RunDirectory, context: Context) -> None:
    if not theirs.file(names.SPACE).exists():
        return
    subject = subject_of(theirs.read(names.SPACE), theirs.path)
    for what, was, found in (
        ("model", subject.fingerprint, context.workload.space.fingerprint()),
        ("data", subject.images, context.workload.source.data_digest),
    ):
        if was != found:
            raise RunError(
                f"stages are reused from a run of the same model and data; the {what} of run {theirs.path} has "
                f"changed since (digest {was}, now {found}): put it back, or start a new search"
            )
