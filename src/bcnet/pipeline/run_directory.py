"""A run directory: one folder that holds one run, finished or not.

`settings.json` makes a folder a run directory. Every file is written whole or not at all, and what a later stage reads
carries a checksum; a stage whose output is there is never run again.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bcnet.errors import RunError
from bcnet.pipeline.lock import LOCK, locked
from bcnet.pipeline.settings import Settings
from bcnet.pipeline.strays import check_contained, sweep
from bcnet.runs import digest
from bcnet.runs import read_document as read_document
from bcnet.train import Checkpoints, make_folder, write_atomic
from bcnet.train.recipe import describe

_OWNER = "belongs_to"


class RunDirectory:
    """The files of one run, locked for one process. Made by `RunDirectory.open`."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings

    @classmethod
    @contextmanager
    def open(cls, path: Path, settings: Settings) -> Iterator[RunDirectory]:
        """Start a run, or go on with one of the same settings; no other process may use the folder meanwhile.

        Raises:
            RunError: another process uses it, it holds another configuration (the first difference is named), is no
                run directory, or cannot be written.
        """
        check_usable(path)
        make_folder(path)
        with locked(path):
            sweep(path)
            stored = read_settings(path) if (path / "settings.json").exists() else None
            if stored is not None:
                _check_same(path, settings, stored)
            if stored != settings:
                write_document(path / "settings.json", settings.model_dump(mode="json"))
            yield cls(path, settings)

    def file(self, name: str) -> Path:
        """The path of a file of this run."""
        return self.path / name

    def identity(self, stage: str) -> dict[str, str]:
        """What the tensor files of a stage are marked with: a file of another run or stage is refused."""
        return {"run": self.settings.fingerprint(), "stage": stage}

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a document that only this run will take, and only under this name.

        Raises:
            RunError: the file system refuses.
        """
        write_document(self.file(name), {_OWNER: self._owner(name), **document})

    def read(self, name: str) -> dict[str, Any]:
        """Read what `write` wrote.

        Raises:
            RunError: missing, changed since, or of another run or name.
        """
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
        """Where a stage keeps its state while it runs."""
        folder = self.path / "checkpoints"
        make_folder(folder)
        return folder / f"{stage}.safetensors"

    def checkpoints(self, stage: str, about: Mapping[str, Any]) -> Checkpoints:
        """How a stage saves its state, and a step that ends it with what is said `about` the module."""
        return Checkpoints(self.checkpoint(stage), self.identity(stage), bad_steps=self.file("bad_steps"), about=about)

    def drop_checkpoints(self, stage: str) -> None:
        """Remove the state of a finished stage."""
        for file in (self.path / "checkpoints").glob(f"{stage}.*safetensors"):
            with contextlib.suppress(OSError):  # what stays is never read again
                file.unlink()

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time inside to the stage's seconds, also when it is interrupted."""
        start = time.monotonic()
        try:
            yield
        except BaseException:
            with contextlib.suppress(RunError):  # why it was interrupted is the news, not that this cannot be written
                self._add_seconds(stage, time.monotonic() - start)
            raise
        self._add_seconds(stage, time.monotonic() - start)

    def _add_seconds(self, stage: str, seconds: float) -> None:
        before = self.seconds()
        self.write("seconds.json", before | {stage: round(before.get(stage, 0.0) + seconds, 3)})

    def seconds(self) -> dict[str, float]:
        """Seconds spent in each stage so far, over all resumes."""
        return self.read("seconds.json") if self.file("seconds.json").exists() else {}


def check_usable(path: Path) -> None:
    """Raise RunError unless `path` is a run directory, an empty folder, or free; nothing in it leads out of it."""
    if path.is_file():
        raise RunError(f"a run directory is a folder; {path} is a file: give another --out")
    if not path.exists():
        return
    check_contained(path)
    if (path / "settings.json").exists():
        return
    others = sorted(p.name for p in path.iterdir() if p.name != LOCK and not p.name.endswith(".tmp"))
    if others:
        raise RunError(
            f"{path} is no run directory: it has no settings.json and holds {', '.join(others[:3])}"
            f"{' and more' if len(others) > 3 else ''}: give a new or an empty folder"
        )


def read_settings(path: Path) -> Settings:
    """The settings of a run directory.

    Raises:
        RunError: there are none, or they are damaged.
    """
    file = path / "settings.json"
    if not file.exists():
        raise RunError(f"{path} is no run directory: it has no settings.json; give the --out of a `bcnet search`")
    check_contained(path)
    try:
        return Settings.model_validate(read_document(file))
    except ValidationError as error:
        raise RunError(f"{file} are no settings of this version: {describe(error)}: start a new run") from None


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write JSON with a checksum of its content, atomically.

    Raises:
        RunError: the file system refuses.
    """
    write_plain(path, {"sha256": digest(document), **document})


def write_plain(path: Path, document: Mapping[str, Any]) -> None:
    """Write JSON as it is, atomically: for others to read, since nothing here does.

    Raises:
        RunError: the file system refuses.
    """
    write_atomic(path, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())


def _check_same(path: Path, settings: Settings, stored: Settings) -> None:
    difference = settings.first_difference(stored)
    if difference is not None:
        key, here, there = difference
        raise RunError(
            f"run directory {path} holds a run of another configuration: {key} is {there!r} there and {here!r} here; "
            f"{_way_on(key, here, there)}, or give another --out"
        )


def _way_on(key: str, here: Any, there: Any) -> str:
    if key == "model" and " " in here and here.partition(" ")[0] == there.partition(" ")[0]:
        return "its weights differ: call torch.manual_seed before making it, or give the function that makes it"
    return "repeat its settings to go on with it"
