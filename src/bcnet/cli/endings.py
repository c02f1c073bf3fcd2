"""The end of a command: its exit code, and the one message that says why."""

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
    """SIGTERM, as schedulers send it before they kill: it ends a command like Ctrl-C, with exit code 143."""


def guard(command: Callable[_P, None]) -> Callable[_P, None]:
    """End with one message where a command cannot go on or is stopped; anything else is a bug and keeps its traceback.

    Exit codes: 2 for an error of ours, a file system that refuses or memory that does not do; 130 for Ctrl-C; 143 for
    SIGTERM.
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
    """End with a message and code 2. Of several processes that fail together one gives the message."""
    if not getattr(cause, "repeated", launched_rank() > 0):
        complain(f"Error: {message}")
    raise typer.Exit(WRONG_REQUEST) from None


@contextmanager
def stoppable(kept: Callable[[], str]) -> Iterator[None]:
    """Say, where work is stopped, what is `kept` and how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        _end_stopped(kept(), stop)


def take_every_stop() -> None:
    """From now on let SIGTERM raise `Terminated` in the main thread, and let no stop be lost.

    Python drops what is raised in a finaliser or in the callback of a weak reference, and imports are full of those.
    """
    signal.signal(signal.SIGTERM, _raise_terminated)
    sys.unraisablehook = _send_again


def exit_code(stop: KeyboardInterrupt) -> int:
    """128 and the number of the signal, as shells count."""
    return 128 + _signal_of(stop)


def complain(text: str) -> None:
    """Print to standard error, control characters as escapes: what is quoted may come from an untrusted file."""
    console = Console(file=sys.__stderr__) if launched_rank() else Console(stderr=True)
    console.print(printable(text), style="red", highlight=False, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """The text with what would steer a terminal, or cannot be encoded, written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def launched_rank() -> int:
    """The number that torchrun gave this process; 0 where it was started alone."""
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdecimal() and "MASTER_ADDR" in os.environ else 0


@contextmanager
def only_the_first_speaks() -> Iterator[None]:
    """Among several processes of one command, let the first alone print; the others keep what they refuse with."""
    with contextlib.ExitStack() as held:
        if launched_rank():
            silence = held.enter_context(open(os.devnull, "w"))
            held.enter_context(contextlib.redirect_stdout(silence))
            held.enter_context(contextlib.redirect_stderr(silence))
        yield


def let_the_first_speak() -> None:
    """Wait before ending, on other processes than the first: torchrun ends all when one has ended."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(_COURTESY)


def _end_stopped(text: str, stop: KeyboardInterrupt) -> NoReturn:
    if not launched_rank():
        complain(text)
    raise typer.Exit(exit_code(stop)) from None


def kept_in_run(run: Path) -> str:
    """Return what is kept of a run that is stopped."""
    if not (run / names.SETTINGS).exists():
        return "Stopped before anything was written."
    record = read_record(run)
    kept = [s.name for s in (record.stages if record is not None else ()) if s.file and (run / s.file).exists()]
    parts = ", ".join((*map(stage_title, kept), "every scored candidate"))
    return (
        f"Stopped. Finished and kept in {run}: {parts}. Of the training at hand "
        "at most the part since its last checkpoint is done again. Run the same command to go on."
    )


def _machine_reason(error: MemoryError | RuntimeError | OSError) -> str | None:
    """Return what the machine lacks, where that is what the error says."""
    first = str(error).partition("\n")[0]
    if isinstance(error, OSError):
        if error.errno not in _STORAGE:
            return None
        place = f"{error.filename} cannot be written" if error.filename else "writing failed"
        return f"{place}: {error.strerror}: what was finished is kept; make room, then run the same command again"
    # torch's allocators raise RuntimeError on the CPU and a kind of it, OutOfMemoryError, on a GPU.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in first:
        return (
            f"the memory of this machine or device does not suffice ({first or 'MemoryError'}): what was finished is "
            "kept; run the same command where there is more, or a new run with a smaller batch (--set batch_size=64)"
        )
    return None


def _signal_of(stop: KeyboardInterrupt) -> signal.Signals:
    return signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT


def _send_again(dropped: sys.UnraisableHookArgs) -> None:
    """Send a stop that was dropped once more, from a thread: sent from here it would be dropped again."""
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        again = threading.Timer(_SOON, os.kill, (os.getpid(), _signal_of(dropped.exc_value)))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(dropped)


def _raise_terminated(*_: Any) -> NoReturn:
    raise Terminated
