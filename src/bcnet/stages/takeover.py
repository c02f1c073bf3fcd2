"""Taking finished stages over from another run.

A stage depends on some of the settings only. Where two runs agree on these, the stage of one is that of the other, bit
for bit: its files are checked against the run they come from and written anew with the marks of the run they go to. So
a run stays what its settings say, and ends as if it had done all by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bcnet.errors import RunError
from bcnet.files.tensors import read_tensors, write_tensors
from bcnet.progress.record import STAGE_FILES
from bcnet.run.directory import RunDirectory, read_settings
from bcnet.run.settings import Settings
from bcnet.searchers import EvaluationStore
from bcnet.stages.base import Context

_SUPERNET = frozenset({"supernet", "strategy", "validation_fraction", "fresh_fraction"})
_BUDGET = frozenset({"budget_macs", "budget_params"})
_BASELINE = frozenset({"baseline", "random_networks", "random_epochs"})
_SEARCH = frozenset(
    {
        "searcher",
        "population",
        "generations",
        "parents",
        "score",
        "own_score",
        "early_stop",
        "early_stop_level",
        "score_batch_size",
        "rescored",
        "tune_steps",
        "finalist_steps",
        "tune_lr_share",
        "search_seed",
    }
)
_FINALISTS = frozenset({"rescored", "finalist_steps"})
_FINAL = frozenset({"final", "final_from", "final_seed", "widths"})

_INDEPENDENT_OF: Mapping[str, frozenset[str]] = {
    "supernet": _BUDGET | _SEARCH | _FINAL | _BASELINE,
    "prior": _SEARCH | _FINAL | _BASELINE,
    "evolution": _FINAL,
    "candidates": _FINAL | _FINALISTS,
    "original": _SUPERNET | _BUDGET | _SEARCH | _BASELINE | {"widths"},
    "Uniform": _SUPERNET | _SEARCH | _BASELINE | {"widths"},
}
_EVALUATIONS = "evaluations.sqlite"
_FILES = {"candidates": (STAGE_FILES["evolution"], _EVALUATIONS)}  # what says that they are there, and taken over
_TENSORS = {  # files of a stage with what they are marked with; the one that says it is finished comes last
    "supernet": {"records": "records", "counts": "counts", "supernet": "supernet"},
    "original": {"original_losses": "original losses", "original": "original"},
    "Uniform": {"uniform_losses": "Uniform losses", "uniform": "Uniform"},
}
_SECONDS = {"evolution": ("evolution", "rescore"), "candidates": ("evolution",)}


def shared_stages(theirs: Settings, ours: Settings) -> tuple[str, ...]:
    """The stages that two runs of these settings have in common; "candidates" are those of the search alone."""
    a, b = theirs.identity(), ours.identity()
    differing = {key for key in a | b if a.get(key) != b.get(key)}
    free = dict(_INDEPENDENT_OF)
    if "supernet" in (theirs.final_from, ours.final_from):  # the final networks are no longer independent of it
        free |= {stage: free[stage] - _SUPERNET for stage in ("original", "Uniform")}
    if not (theirs.tune_steps or ours.tune_steps):  # only finalists are fine-tuned
        free["candidates"] |= {"tune_lr_share"}
    return tuple(stage for stage in free if differing <= free[stage])


def others(runs: Sequence[str | Path], run_dir: Path) -> list[Path]:
    """Those of `runs` that are not the one in `run_dir` itself.

    Raises:
        RunError: one is no run directory.
    """
    if isinstance(runs, (str, Path)):
        runs = (runs,)
    paths = [Path(run) for run in runs]
    for path in paths:
        read_settings(path)
    return [path for path in paths if path.resolve() != run_dir.resolve()]


def take_over(source: Path, context: Context) -> tuple[str, ...]:
    """Take the finished stages that the run in `source` shares with this one, those that are not here yet.

    Returns:
        The stages taken.

    Raises:
        RunError: the files of `source` are damaged, or its model or data were others behind their names.
    """
    theirs = RunDirectory(source, read_settings(source))
    _check_subject(theirs, context)
    taken = []
    for stage in shared_stages(theirs.settings, context.settings):
        needed = _needed(stage, context.settings)
        there, here = _FILES.get(stage) or (STAGE_FILES[stage],) * 2
        if needed and theirs.file(there).exists() and not context.directory.file(here).exists():
            _COPY[stage](stage, theirs, context)
            _copy_seconds(stage, theirs, context.directory)
            taken.append(stage)
    if taken:
        context.reporter.note(f"taken over from {source}: {', '.join(taken)}")
    return tuple(taken)


def _needed(stage: str, settings: Settings) -> bool:
    if stage == "prior":
        return settings.needs_prior
    return settings.has_supernet or stage in ("original", "Uniform")


def _check_subject(theirs: RunDirectory, context: Context) -> None:
    if not theirs.file("space.json").exists():
        return
    summary = theirs.read("space.json")
    here = {"fingerprint": context.subject.space.fingerprint(), "images": context.subject.source.data_digest}
    for key, what in (("fingerprint", "model"), ("images", "data")):
        if summary.get(key) != here[key]:
            raise RunError(
                f"stages are taken over from a run of the same model and data; the {what} of run {theirs.path} has "
                f"changed since ({key} {summary.get(key)}, now {here[key]}): put it back, or start a new search"
            )


def _copy_tensors(stage: str, theirs: RunDirectory, context: Context) -> None:
    for name, mark in _TENSORS[stage].items():
        tensors, state = read_tensors(theirs.file(f"{name}.safetensors"), theirs.identity(mark))
        ours = context.directory
        write_tensors(ours.file(f"{name}.safetensors"), tensors, ours.identity(mark), state)


def _copy_document(stage: str, theirs: RunDirectory, context: Context) -> None:
    context.directory.write(STAGE_FILES[stage], theirs.read(STAGE_FILES[stage]))


def _copy_candidates(stage: str, theirs: RunDirectory, context: Context) -> None:
    name, space, ours = _EVALUATIONS, context.subject.space, context.directory
    with (
        EvaluationStore(theirs.file(name), space, theirs.settings.fingerprint()) as source,
        EvaluationStore(ours.file(name), space, ours.settings.fingerprint()) as target,
    ):
        for candidate in source.evaluations[len(target.evaluations) :]:
            target.add(candidate)


def _copy_search(stage: str, theirs: RunDirectory, context: Context) -> None:
    _copy_candidates(stage, theirs, context)
    _copy_document(stage, theirs, context)


def _copy_seconds(stage: str, theirs: RunDirectory, ours: RunDirectory) -> None:
    """What a stage took is part of what the result took, wherever it was done."""
    took = {key: s for key, s in theirs.seconds().items() if key in _SECONDS.get(stage, (stage,))}
    ours.write("seconds.json", ours.seconds() | took)


_COPY: Mapping[str, Callable[[str, RunDirectory, Context], None]] = {
    "supernet": _copy_tensors,
    "prior": _copy_document,
    "evolution": _copy_search,
    "candidates": _copy_candidates,
    "original": _copy_tensors,
    "Uniform": _copy_tensors,
}
