"""Atomic writes, so that neither a crash nor a power failure leaves a partial file."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from bcnet.errors import RunError


def write_atomic(path: Path, content: bytes, *, keep_previous: bool = False) -> None:
    """Replace `path` by `content` so that readers, and a power failure, see either the old or the new file.

    With `keep_previous` the old file is kept as `previous_of(path)`.

    Raises:
        RunError: the file system is full, read-only or missing.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep_previous and path.exists():
            os.replace(path, previous_of(path))
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise RunError(
            f"{path} cannot be written: {error.strerror}: what was finished before is kept; "
            "make room or give write access, then run the same command again"
        ) from None


def make_folder(path: Path) -> None:
    """Make a folder and its parents durably, surviving a power failure; existing folders are accepted.

    Raises:
        RunError: it cannot be made, or a file has the name.
    """
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        for folder in new:
            _sync_directory(folder.parent)
    except OSError as error:
        raise RunError(f"folder {path} cannot be made: {error.strerror}: make room, or give another place") from None


def previous_of(path: Path) -> Path:
    """Return the path of the checkpoint before `path`."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def _sync_directory(directory: Path) -> None:
    # A new name is durable once its folder is synced.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
