"""Disk space, checked before a stage starts."""

from __future__ import annotations

import shutil
from pathlib import Path

from bcnet.display import size
from bcnet.errors import RunError

_MARGIN = 2  # others write to the disk too


def check_room(path: Path, stage: str, needed: int) -> None:
    """Check that the disk of `path` has room for twice the `needed` bytes of a stage.

    Raises:
        RunError: there is less.
    """
    free = free_bytes(path)
    if free < _MARGIN * needed:
        raise RunError(
            f"stage {stage} writes about {size(needed)} and starts where twice that is free; the disk of {path} has "
            f"{size(free)}: make room and run the same command again, or give an --out on another disk"
        )


def free_bytes(path: Path) -> int:
    """Return the free bytes of the disk that holds, or would hold, `path`."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free
