"""Files that do not belong in a run directory: links out of it, and temporary files of killed processes."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from bcnet.errors import RunError

_HALF_WRITTEN = re.compile(r"\..+\.\d+\.tmp")


def check_contained(folder: Path) -> None:
    """Check that a run directory contains only its own files and folders.

    A run directory may be untrusted: a link would make the run write or delete its target, and a pipe would block it
    forever. Files that a running process removes meanwhile are ignored.

    Raises:
        RunError: a link, a pipe or a device, or a folder that cannot be read.
    """
    for path in _entries(folder):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            kind = "a link" if stat.S_ISLNK(mode) else "no regular file"
            raise RunError(
                f"a run directory must hold files and folders of its own; {path} is {kind}: put the file itself there, "
                "or give another --out"
            )


def remove_temporary_files(folder: Path) -> None:
    """Remove files that a killed process was writing; the caller holds the folder's lock."""
    for path in _entries(folder):
        if _HALF_WRITTEN.fullmatch(path.name):
            with contextlib.suppress(OSError):
                path.unlink()


def _entries(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        if isinstance(error, FileNotFoundError) and Path(error.filename) != folder:
            return
        raise RunError(f"run directory {folder} cannot be read: {error.strerror}: give another --out")

    for place, folders, files in os.walk(folder, onerror=refuse):
        yield from (Path(place, name) for name in (*folders, *files))
