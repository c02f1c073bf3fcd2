"""A run directory: one folder that holds one run, finished or not.

`settings.json` makes a folder a run directory. Every file is written atomically, and files that later stages read have
a checksum. A stage whose output exists is never run again. If several processes work on a run, all call the methods of
`RunDirectory` together: rank 0 does the work, and all get its result.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import ValidationError

from bcnet.costs import ConvertedGraph, LatencyModel
from bcnet.distributed import ProcessGroup
from bcnet.errors import RecipeError, RunError
from bcnet.files.atomic import make_folder
from bcnet.files.documents import read_document as read_document
from bcnet.files.documents import write_document
from bcnet.files.lock import LOCK, lock
from bcnet.files.tensors import read_tensors, write_tensors
from bcnet.files.untrusted import check_contained, remove_temporary_files
from bcnet.machine.disk import check_room
from bcnet.run import names
from bcnet.run.result import RunResult
from bcnet.run.settings import Settings
from bcnet.train import Checkpoints
from bcnet.train.recipe import describe

_Made = TypeVar("_Made")
_OWNER = "belongs_to"


class RunDirectory:
    """Files of one run, locked while open. Made by `RunDirectory.open`."""

    def __init__(self, path: Path, settings: Settings, world: ProcessGroup | None = None) -> None:
        self.path = path
        self.settings = settings
        self._world = world or ProcessGroup()

    @classmethod
    @contextmanager
    def open(cls, path: Path, settings: Settings, world: ProcessGroup | None = None) -> Iterator[RunDirectory]:
        """Start a run, or resume one with the same settings; no other process can use the folder meanwhile.

        `world` are the processes that work on it, by default this one alone.

        Raises:
            RunError: another process uses it, it has another configuration (the message names the first difference), it
                is not a run directory, or it cannot be written.
        """
        directory = cls(path, settings, world)
        with contextlib.ExitStack() as held:
            directory._world.on_rank_zero(lambda: held.enter_context(_take_directory(path, settings)))
            yield directory

    def for_this_process(self) -> RunDirectory:
        """Return the same directory for this process alone, for work that the others have no part in."""
        return RunDirectory(self.path, self.settings)

    def file(self, name: str) -> Path:
        """Return the path of a file of this run."""
        return self.path / name

    def has(self, name: str) -> bool:
        """Return whether a file of this name exists."""
        return self._world.on_rank_zero(lambda: self.file(name).exists())

    def check_room(self, stage: str, needed: int) -> None:
        """Raise RunError unless the disk has room for the `needed` bytes of a stage."""
        self._world.on_rank_zero(lambda: check_room(self.path, stage, needed))

    def identity(self, stage: str) -> dict[str, str]:
        """Return the marks of a stage's tensor files; files with other marks are refused."""
        return {"run": self.settings.fingerprint(), "stage": stage}

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a document that is valid only for this run and under this name.

        Raises:
            RunError: it cannot be written.
        """
        self._world.on_rank_zero(lambda: self._write(name, document))

    def read(self, name: str) -> dict[str, Any]:
        """Read what `write` wrote.

        Raises:
            RunError: missing, modified, or from another run or name.
        """
        return self._world.on_rank_zero(lambda: self._read(name))

    def write_tensors(
        self, name: str, stage: str, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any] | None = None
    ) -> None:
        """Write the final tensors of a stage, and plain values with them.

        Raises:
            RunError: they cannot be written.
        """
        self._world.on_rank_zero(lambda: write_tensors(self.file(name), tensors, self.identity(stage), state))

    def read_tensors(self, name: str, stage: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Read what `write_tensors` wrote for the same stage.

        Raises:
            RunError: missing, corrupt, or from another run or stage.
        """
        found = self._world.tensors_from_rank_zero(lambda: read_tensors(self.file(name), self.identity(stage)))
        assert found is not None
        return found

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        write_document(self.file(name), {_OWNER: self._owner(name), **document})

    def _read(self, name: str) -> dict[str, Any]:
        document = read_document(self.file(name))
        owner = document.pop(_OWNER, None)
        if owner != self._owner(name):
            raise RunError(
                f"{self.file(name)} belongs to {json.dumps(owner)}; expected {json.dumps(self._owner(name))}: put the "
                "right file back, or start a new run directory"
            )
        return document

    def _owner(self, name: str) -> dict[str, str]:
        return {"run": self.settings.fingerprint(), "file": name}

    def checkpoint(self, stage: str) -> Path:
        """Return the folder of a stage's checkpoints."""
        folder = self.path / "checkpoints"
        self._world.on_rank_zero(lambda: make_folder(folder))
        return folder / f"{stage}.safetensors"

    def checkpoints(self, stage: str, every_seconds: float) -> Checkpoints:
        """Return where and how often a training stage saves its state."""
        return Checkpoints(self.checkpoint(stage), self.identity(stage), every_seconds)

    def drop(self, name: str) -> None:
        """Remove a document that is no longer needed, if it exists."""
        self._remove([self.file(name)])

    def drop_checkpoints(self, stage: str) -> None:
        """Remove the checkpoints of a finished stage."""
        self._remove((self.path / "checkpoints").glob(f"{stage}.*safetensors"))

    def _remove(self, files: Iterable[Path]) -> None:
        if not self._world.is_rank_zero:
            return
        for file in files:
            with contextlib.suppress(OSError):  # files left behind are never read again
                file.unlink()

    @contextmanager
    def time_stage(self, stage: str) -> Iterator[None]:
        """Add the time in the block to the stage's seconds, even if it is interrupted."""
        start = time.monotonic()
        try:
            yield
        except BaseException:
            with contextlib.suppress(RunError):  # the interruption matters, not that its time cannot be written
                self._add_seconds(stage, time.monotonic() - start)
            raise
        self._add_seconds(stage, time.monotonic() - start)

    def _add_seconds(self, stage: str, seconds: float) -> None:
        if self._world.is_rank_zero:
            before = self._seconds()
            self._write(names.SECONDS, before | {stage: round(before.get(stage, 0.0) + seconds, 3)})

    def seconds(self) -> dict[str, float]:
        """Seconds spent in each stage so far, over all resumes."""
        return self._world.on_rank_zero(self._seconds)

    def _seconds(self) -> dict[str, float]:
        return self._read(names.SECONDS) if self.file(names.SECONDS).exists() else {}


@contextmanager
def _take_directory(path: Path, settings: Settings) -> Iterator[None]:
    check_usable(path)
    make_folder(path)
    with lock(path):
        remove_temporary_files(path)
        if check_resumable(path, settings) != settings:
            write_document(path / names.SETTINGS, settings.to_document())
        yield


def run_path(run: object) -> Path:
    """Return the path of a run's directory, from text, a path or what `bcnet.search` returned.

    Raises:
        RunError: none of them.
    """
    if isinstance(run, str | os.PathLike):
        return Path(run)
    raise RunError(
        f"a run must be given by the path of its directory; got {type(run).__name__}: write 'runs/half', say"
    )


def check_usable(path: Path) -> None:
    """Raise RunError unless `path` is a run directory, an empty folder or free, without links that lead out of it."""
    if path.is_file():
        raise RunError(f"a run directory must be a folder; {path} is a file: give another --out")
    if not path.exists():
        return
    check_contained(path)
    if (path / names.SETTINGS).exists():
        return
    others = sorted(p.name for p in path.iterdir() if p.name != LOCK and not p.name.endswith(".tmp"))
    if others:
        raise RunError(
            f"{path} is not a run directory: it has no settings.json and holds {', '.join(others[:3])}"
            f"{' and more' if len(others) > 3 else ''}: give a new or an empty folder"
        )


def read_latency_model(directory: RunDirectory) -> LatencyModel:
    """Return the latency model of a run.

    Raises:
        RunError: the file is missing or corrupt.
    """
    return _read_as(directory, names.LATENCY_MODEL, "latency model", lambda file: LatencyModel.from_dict(file["model"]))


def read_graph_file(directory: RunDirectory) -> ConvertedGraph:
    """Return the converted graph of a run.

    Raises:
        RunError: the file is missing or corrupt.
    """
    return _read_as(
        directory, names.CONVERTED_GRAPH, "converted graph", lambda file: ConvertedGraph.from_dict(file["graph"])
    )


def _read_as(directory: RunDirectory, name: str, what: str, make: Callable[[dict[str, Any]], _Made]) -> _Made:
    try:
        return make(directory.read(name))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        file = directory.file(name)
        raise RunError(f"{file} is not a valid {what} ({error!r}): restore it, or start a new run") from None


def read_settings(path: Path) -> Settings:
    """Return the settings of a run directory.

    Raises:
        RunError: the file is missing or corrupt.
    """
    file = path / names.SETTINGS
    if not file.exists():
        raise RunError(f"{path} is not a run directory: it has no settings.json; give the --out of a `bcnet search`")
    check_contained(path)
    try:
        return Settings.from_document(read_document(file))
    except (ValidationError, RecipeError) as error:
        fault = describe(error) if isinstance(error, ValidationError) else error
        raise RunError(f"{file} does not hold settings of this version: {fault}: start a new run") from None


def stored_settings(path: Path) -> Settings | None:
    """Return the settings of the run in `path`; None if there is none.

    Raises:
        RunError: the file is corrupt.
    """
    return read_settings(path) if (path / names.SETTINGS).exists() else None


def read_result(run: Path) -> RunResult:
    """Return the content of a finished run's `result.json`.

    Raises:
        RunError: no run, an unfinished run, or a result that is corrupt or from another run or version.
    """
    settings = read_settings(run)
    if not (run / names.RESULT).exists():
        raise RunError(f"run directory {run} has no result yet: repeat its `bcnet search` command to finish it")
    document = RunDirectory(run, settings).read(names.RESULT)
    try:
        return RunResult.model_validate(document)
    except ValidationError as error:
        raise RunError(
            f"{run / names.RESULT} is not a result of this version: {describe(error)}: repeat the `bcnet search` "
            "command in a new run directory"
        ) from None


def check_resumable(path: Path, settings: Settings) -> Settings | None:
    """Return the settings stored in a run directory, None if it is new.

    Raises:
        RunError: they differ from `settings` in what a run computes, or are corrupt.
    """
    stored = stored_settings(path)
    difference = None if stored is None else settings.first_difference(stored)
    if difference is not None:
        key, here, there = difference
        raise RunError(
            f"run directory {path} holds a run of another configuration: {key} is {there!r} there and {here!r} here; "
            f"{_resume_hint(key, here, there)}, or give another --out"
        )
    return stored


def _resume_hint(key: str, here: Any, there: Any) -> str:
    if key == "model" and " " in here and here.partition(" ")[0] == there.partition(" ")[0]:
        return "its weights differ: call torch.manual_seed before making it, or give the function that makes it"
    if key == "options.processes":
        return f"batch norm and the rounding of sums depend on it: resume with {there} processes (torchrun)"
    return "repeat its settings to resume it"
