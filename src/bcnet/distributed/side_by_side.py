"""Calls side by side, in copies of this process that have one CPU thread each.

Eight short trainings of a small network take less time on eight cores than one after the other on eight threads. A copy
(`fork`) has all that the process has: model, data and functions are not sent. It takes the next call when it is free,
sends back JSON, and ends with the process that made it, however that ends.
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

from bcnet.distributed.failures import failure_document, rebuilt_error
from bcnet.errors import ProcessError

_T = TypeVar("_T")
_R = TypeVar("_R")
_NUMBER = 4  # bytes of the number of a call
_MOST_CALLS = 4096 // _NUMBER  # what a pipe takes at once on every system
_LOOK = 0.2  # seconds between two looks at whether the process is still there
_SILENCE = 120.0  # seconds without an outcome, after which copies have to have computed
_IDLE = 0.01  # of that time, which looking at the process takes as well


class _SilentError(Exception):
    """Copies that wait for what nobody gives: a lock, perhaps, that a thread held while the process was copied."""


def can_fork() -> bool:
    """Return whether this process may be copied: not on Windows, and not where torch may have started a GPU."""
    return hasattr(os, "fork") and not torch.cuda.is_available() and sys.platform != "darwin"


def map_side_by_side(function: Callable[[_T], _R], items: Iterable[_T], *, processes: int) -> Iterator[_R]:
    """Do what the builtin `map` does, in so many copies of this process; `function` returns plain JSON values.

    What `function` raises is raised at its place in the order, and ends the copies. Where copies do nothing any more,
    this process does what is left.

    Raises:
        ProcessError: a copy ended before its time, or `function` raised what is no error of ours.
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
        except _SilentError:
            yield from map(function, some[done:])


@contextmanager
def _copies(function: Callable[[Any], Any], calls: Sequence[Any], processes: int) -> Iterator[Iterator[dict[str, Any]]]:
    """The outcomes of the calls in their order, from copies that are ended with the block."""
    taken, numbers = os.pipe()
    os.write(numbers, b"".join(number.to_bytes(_NUMBER, "big") for number in range(len(calls))))
    os.close(numbers)  # who reads beyond the last number hears of the end
    copies: dict[int, int] = {}  # where its outcomes are read -> its process
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
    """Hold stops back: Python drops what is raised while it forks, and a copy must not clear up for its process."""
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield usual
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


@contextmanager
def _forking_without_warning() -> Iterator[None]:
    """Keep Python from warning of threads: a copy has none of them, and takes no lock that they may hold."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
        yield


def _work(function: Callable[[Any], Any], calls: Sequence[Any], taken: int, writer: int, usual: set[int]) -> None:
    """Do calls until none is left; never returns, and runs nothing that the process would run at its end.

    Ctrl-C reaches all processes of a terminal; the one that was copied ends the copies.
    """
    parent = os.getppid()
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
        gc.freeze()  # what the process made is not cleared up here
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        torch.set_num_threads(1)  # OpenMP's threads are not copied, and more than one would be waited for
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
    """The processor time of copies; that of the clock where the system does not say, so that they are waited for."""
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
                if not selector.get_map():
                    raise ProcessError(
                        f"{len(copies)} processes that train candidates ended without a word, as they do where memory "
                        "is short: train fewer at once (--at-once 1); what was scored is kept"
                    )
                before = _seconds_computed(copies.values())
                ready = selector.select(_SILENCE)
                if not ready and _seconds_computed(copies.values()) - before < _IDLE * _SILENCE:
                    raise _SilentError
                for key, _ in ready:
                    reader = key.fd
                    content = os.read(reader, 2**16)
                    if not content:
                        selector.unregister(reader)
                    *lines, received[reader] = (received[reader] + content).split(b"\n")
                    known.update(json.loads(line) for line in lines)
            yield known.pop(place)
