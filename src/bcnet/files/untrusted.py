"""Files that do not belong into a run directory: links out of it, and what killed processes left half-written."""

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
    """Make sure that everything in a run directory is a file or a folder of its own.

    A run directory may be untrusted: a link would have the run write, or delete, what it points to; a pipe
    would have it wait forever. What a run that goes on removes meanwhile is passed over.

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
                f"a run directory holds files and folders of its own; {path} is {kind}: put the file itself there, or "
                "give another --out"
            )


def remove_temporary_files(folder: Path) -> None:
    """Remove what was being written when a process was killed; the caller holds the folder's lock."""
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
