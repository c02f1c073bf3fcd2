"""Lock of a run directory for one process at a time. The operating system releases it when the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bcnet.errors import RunError

LOCK = "lock"
# Another process may hold the lock briefly to test whether it is held.
_ATTEMPTS = 5
_PAUSE = 0.05  # seconds

_held: set[int] = set()


def _let_go() -> None:
    """Close the locks in a forked child, which would otherwise keep them after its parent is killed."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, a file with its holder as `PID on HOST`.

    Raises:
        RunError: another process holds it (the message names it), or the file system does not support locks.
    """
    try:
        # never through a link, since the file is written to
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _write_error(folder, error) from None
    _held.add(descriptor)
    try:
        _take_lock(descriptor, folder)
        yield
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def _take_lock(descriptor: int, folder: Path) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if attempt == _ATTEMPTS - 1:
                raise RunError(
                    f"process {_owner(descriptor)} works in run directory {folder}: wait for it, stop it, or give "
                    "another --out"
                ) from None
            time.sleep(_PAUSE)
        except OSError as error:
            raise _write_error(folder, error) from None
    with contextlib.suppress(OSError):  # the name is informative only; the lock holds without it
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def _owner(descriptor: int) -> str:
    return os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another"


def _write_error(folder: Path, error: OSError) -> RunError:
    return RunError(
        f"run directory {folder} cannot be written: {error.strerror}: give write access, or give another --out"
    )
