"""Room on the disk, asked for before a stage starts rather than missed at its end."""

from __future__ import annotations

import shutil
from pathlib import Path

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
    """What is free on the disk that `path` is on, or would be."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def size(count: float) -> str:
    """Bytes for people.

    Example: `size(2_254_857_830) == "2.1 GiB"`.
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit in ("bytes", "KiB") or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
