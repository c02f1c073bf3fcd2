"""Room on the disk, asked for before a stage starts rather than missed at its end."""

from __future__ import annotations

import shutil
from pathlib import Path

from bcnet.display import size
from bcnet.errors import RunError

_MARGIN = 2  # others write to the disk as well


def check_room(path: Path, stage: str, needed: int) -> None:
    """Make sure that a stage can write `needed` bytes, twice over, to the disk of `path`.

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
    """Return what is free on the disk that `path` is on, or would be."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free
