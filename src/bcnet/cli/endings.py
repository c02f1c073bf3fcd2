"""The end of a command: its exit code, and one message with the reason."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import typer
from rich.console import Console

from bcnet.display import stage_title
from bcnet.errors import BCNetError
from bcnet.progress.record import read_record
from bcnet.run import names

WRONG_REQUEST = 2
_COURTESY = 3.0  # seconds
_SOON = 0.05  # seconds
_P = ParamSpec("_P")
_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


class Terminated(KeyboardInterrupt):
    """SIGTERM, as sent by schedulers before they kill: ends a command like Ctrl-C, with exit code 143."""


def guard(command: Callable[_P, None]) -> Callable[_P, None]:
    """End the command with one message if it fails or is stopped; bugs keep their traceback.

    Exit codes: 2 for errors of this library, file system errors and lack of memory; 130 for Ctrl-C; 143 for SIGTERM.

    """

    @functools.wraps(command)
    def guarded_command(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except BCNetError as error:
            refuse(str(error), error)
        except KeyboardInterrupt as stop:
            _end_stopped("Stopped.", stop)
        except (MemoryError, RuntimeError, OSError) as error:
            reason = _machine_reason(error)
            if reason is None:
                raise
            refuse(reason, error)

    return guarded_command


def refuse(message: str, cause: Exception | None = None) -> NoReturn:
    """End with a message and code 2. If several processes fail together, only one prints it."""
    if not getattr(cause, "repeated", launched_rank() > 0):
        complain(f"Error: {message}")
    raise typer.Exit(WRONG_REQUEST) from None


@contextmanager
def stoppable(kept: Callable[[], str]) -> Iterator[None]:
    """On a stop within the block, say what is `kept` and how to resume."""
    try:
        yield
    except KeyboardInterrupt as stop:
        _end_stopped(kept(), stop)


def take_every_stop() -> None:
    """Make SIGTERM raise `Terminated` in the main thread, and never lose a stop.

    Python drops exceptions raised in finalisers and weak-reference callbacks, which are frequent during imports.
    """
    signal.signal(signal.SIGTERM, _raise_terminated)
    sys.unraisablehook = _send_again


def exit_code(stop: KeyboardInterrupt) -> int:
    """Return 128 plus the signal's number, as shells do."""
    return 128 + _signal_of(stop)


def complain(text: str) -> None:
    """Print to standard error with control characters escaped, since quoted text may come from an untrusted file."""
    console = Console(file=sys.__stderr__) if launched_rank() else Console(stderr=True)
    console.print(printable(text), style="red", highlight=False, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Return the text with control and unencodable characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def launched_rank() -> int:
    """Return the rank set by torchrun; 0 without torchrun."""
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdecimal() and "MASTER_ADDR" in os.environ else 0


@contextmanager
def silence_other_ranks() -> Iterator[None]:
    """Let only rank 0 print within the block; the other processes keep their error messages."""
    with contextlib.ExitStack() as held:
        if launched_rank():
            silence = held.enter_context(open(os.devnull, "w"))
            held.enter_context(contextlib.redirect_stdout(silence))
            held.enter_context(contextlib.redirect_stderr(silence))
        yield


def wait_for_rank_zero() -> None:
    """Wait before ending on other ranks, since torchrun ends all processes when one has ended."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(_COURTESY)


def _end_stopped(text: str, stop: KeyboardInterrupt) -> NoReturn:
    if not launched_rank():
        complain(text)
    raise typer.Exit(exit_code(stop)) from None


def kept_in_run(run: Path) -> str:
    """Return what is kept of an interrupted run."""
    if not (run / names.SETTINGS).exists():
        return "Stopped before anything was written."
    record = read_record(run)
    stages = () if record is None else record.stages
    kept = [stage.name for stage in stages if stage.file and (run / stage.file).exists()]
    parts = ", ".join((*map(stage_title, kept), "every scored candidate"))
    return (
        f"Stopped. Finished and kept in {run}: {parts}. At most the training "
        "since the last checkpoint is repeated. Run the same command to resume."
    )


def _machine_reason(error: MemoryError | RuntimeError | OSError) -> str | None:
    """Return the machine's missing resource, if that is the error's cause."""
    first = str(error).partition("\n")[0]
    if isinstance(error, OSError):
        if error.errno not in _STORAGE:
            return None
        place = f"{error.filename} cannot be written" if error.filename else "writing failed"
        return f"{place}: {error.strerror}: what was finished is kept; make room, then run the same command again"
    # torch's allocators raise RuntimeError on the CPU, and its subclass OutOfMemoryError on a GPU.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in first:
        return (
            f"the memory of this machine or device does not suffice ({first or 'MemoryError'}): what was finished is "
            "kept; run the same command where there is more, or a new run with a smaller batch (--set batch_size=64)"
        )
    return None


def _signal_of(stop: KeyboardInterrupt) -> signal.Signals:
    return signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT


def _send_again(dropped: sys.UnraisableHookArgs) -> None:
    """Send a dropped stop again from a thread, since here it would be dropped again."""
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        again = threading.Timer(_SOON, os.kill, (os.getpid(), _signal_of(dropped.exc_value)))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(dropped)


def _raise_terminated(*_: Any) -> NoReturn:
    raise Terminated
