"""Files written whole or not at all, so that neither a crash nor a power failure leaves half of one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from bcnet.errors import RunError


def write_atomic(path: Path, content: bytes, *, keep_previous: bool = False) -> None:
    """Replace `path` by `content` so that a reader, or a power failure, meets the old file or the new one whole.

    With `keep_previous` the old file stays as `previous_of(path)`.

    Raises:
        RunError: the file system refuses: full, read-only, gone.
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
    """Make a folder, and those above it, so that they outlast a power failure; one that exists will do.

    Raises:
        RunError: the file system refuses, or a file is in the way.
    """
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        for folder in new:
            _sync_directory(folder.parent)
    except OSError as error:
        raise RunError(f"folder {path} cannot be made: {error.strerror}: make room, or give another place") from None


def previous_of(path: Path) -> Path:
    """Return where the checkpoint before `path` is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def _sync_directory(directory: Path) -> None:
    # A new name survives a power failure once the folder that lists it has been written.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
