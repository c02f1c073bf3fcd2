"""Parallel calls in forked copies of this process with one CPU thread each.

Eight short trainings of a small network take less time on eight cores than one after the other with eight threads. A
copy (`fork`) shares all data of the process, so model, data and functions are not sent. It takes the next call when it
is free, returns JSON, and ends with its parent process, however that ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from bcnet.distributed.process_group import failure_document, rebuilt_error
from bcnet.errors import ProcessError

_T = TypeVar("_T")
_R = TypeVar("_R")
_NUMBER = 4  # bytes of the number of a call
_MOST_CALLS = 4096 // _NUMBER  # capacity of a pipe on every system
_LOOK = 0.2  # seconds between two checks of the parent process
_SILENCE = 120.0  # seconds without a result after which copies must have used processor time
_IDLE = 0.01  # of that time, used by checking the parent


class _SilentError(Exception):
    """Copies that wait forever, perhaps for a lock that a thread held during the fork."""


def can_fork() -> bool:
    """Return whether this process can be forked: not on Windows, and not if torch may have initialised a GPU."""
    return hasattr(os, "fork") and not torch.cuda.is_available() and sys.platform != "darwin"


def map_side_by_side(function: Callable[[_T], _R], items: Iterable[_T], *, processes: int) -> Iterator[_R]:
    """Like the builtin `map`, in `processes` forked copies of this process; `function` returns JSON values.

    An exception is raised at its place in the order, and ends the copies. If copies stop making progress, this process
    does the remaining calls.

    Raises:
        ProcessError: a copy ended early, or `function` raised an error of another library.
    """
    calls = list(items)
    for first in range(0, len(calls), _MOST_CALLS):
        some = calls[first : first + _MOST_CALLS]
        if processes < 2 or len(some) < 2:
            yield from map(function, some)
            continue
        done = 0
        try:
            with _copies(function, some, min(processes, len(some))) as outcomes:
                for outcome in outcomes:
                    if "failure" in outcome:
                        raise rebuilt_error(*outcome["failure"])
                    done += 1
                    yield outcome["value"]
        # A copy that hangs would block the run forever; what it left is computed here, one call after the other.
        except _SilentError:
            yield from map(function, some[done:])


@contextmanager
def _copies(function: Callable[[Any], Any], calls: Sequence[Any], processes: int) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield the results of the calls in order, from copies that end with the block."""
    taken, numbers = os.pipe()
    os.write(numbers, b"".join(number.to_bytes(_NUMBER, "big") for number in range(len(calls))))
    os.close(numbers)  # readers then see the end of the file
    copies: dict[int, int] = {}  # pipe that its results are read from -> its process
    try:
        for _ in range(processes):
            reader, writer = os.pipe()
            with _hold_stops() as usual, _forking_without_warning():
                process = os.fork()
                if process == 0:
                    _work(function, calls, taken, writer, usual)
                copies[reader] = process
            os.close(writer)
        yield _in_order(copies, len(calls))
    finally:
        os.close(taken)
        for reader, process in copies.items():
            os.close(reader)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)


@contextmanager
def _hold_stops() -> Iterator[set[int]]:
    """Block stop signals: Python drops exceptions raised during a fork, and a copy must not clean up for its parent."""
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield usual
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


@contextmanager
def _forking_without_warning() -> Iterator[None]:
    """Silence Python's warning about threads: a copy has none, and takes no lock that they may hold."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
        yield


def _work(function: Callable[[Any], Any], calls: Sequence[Any], taken: int, writer: int, usual: set[int]) -> None:
    """Do calls until none is left; never returns, and runs no exit handlers of the process.

    Ctrl-C reaches all processes of a terminal; the parent ends the copies.
    """
    parent = os.getppid()
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
        gc.freeze()  # objects of the parent are not collected here
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        torch.set_num_threads(1)  # OpenMP's threads do not survive a fork; torch would wait for them
        while number := os.read(taken, _NUMBER):
            place = int.from_bytes(number, "big")
            try:
                outcome = {"value": function(calls[place])}
            except Exception as error:
                outcome = failure_document(error)
            _send(writer, json.dumps([place, outcome]).encode() + b"\n")
    finally:
        os._exit(0)


def _send(writer: int, line: bytes) -> None:
    while line:
        line = line[os.write(writer, line) :]


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(0)


def _seconds_computed(copies: Iterable[int]) -> float:
    """Return the processor time of copies; the clock's time if the system does not report it."""
    try:
        states = [Path(f"/proc/{copy}/stat").read_bytes().rpartition(b")")[2].split() for copy in copies]
        return sum(int(state[11]) + int(state[12]) for state in states) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.monotonic()


def _in_order(copies: dict[int, int], count: int) -> Iterator[dict[str, Any]]:
    known: dict[int, dict[str, Any]] = {}
    received = dict.fromkeys(copies, b"")
    with selectors.DefaultSelector() as selector:
        for reader in copies:
            selector.register(reader, selectors.EVENT_READ)
        for place in range(count):
            while place not in known:
                # All pipes are closed, yet results are missing: the copies have died.
                if not selector.get_map():
                    raise ProcessError(
                        f"{len(copies)} processes that train candidates ended without an error message, usually "
                        "because memory ran out: train fewer at once (--at-once 1); scores so far are kept"
                    )
                # A long candidate is silent but computes; a copy that deadlocked after the fork does neither.
                before = _seconds_computed(copies.values())
                ready = selector.select(_SILENCE)
                if not ready and _seconds_computed(copies.values()) - before < _IDLE * _SILENCE:
                    raise _SilentError
                for key, _ in ready:
                    reader = key.fd
                    content = os.read(reader, 2**16)
                    if not content:
                        selector.unregister(reader)
                    # A read ends anywhere, so the rest after the last line break waits for the next one.
                    *lines, received[reader] = (received[reader] + content).split(b"\n")
                    known.update(json.loads(line) for line in lines)
            yield known.pop(place)
