"""File events of a folder as they happen (Linux), so that a process can be killed in the middle of a write."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from pathlib import Path

_MODIFY, _CLOSE_WRITE, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x80, 0x100, 0x200
_EVENT = struct.Struct("iIII")


class FileEvents:
    """Counts creations, writes, renames and removals in a folder and its subfolders."""

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._folders: dict[int, Path] = {}
        self._watch(folder)
        for child in folder.iterdir():
            if child.is_dir():
                self._watch(child)

    def __enter__(self) -> FileEvents:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _watch(self, folder: Path) -> None:
        mask = _MODIFY | _CLOSE_WRITE | _MOVED_TO | _CREATE | _DELETE
        handle = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask)
        if handle < 0:
            raise OSError(ctypes.get_errno(), "inotify", str(folder))
        self._folders[handle] = folder

    def wait(self, seconds: float) -> int:
        """The number of events since the last call, at once where there are any, else after at most `seconds`."""
        if not select.select([self._descriptor], [], [], max(seconds, 0.0))[0]:
            return 0
        content = os.read(self._descriptor, 1 << 16)
        count = at = 0
        while at < len(content):
            handle, mask, _, length = _EVENT.unpack_from(content, at)
            name = content[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            count += 1
            child = self._folders.get(handle, Path()) / os.fsdecode(name)
            if mask & _CREATE and child.is_dir():
                self._watch(child)
        return count
