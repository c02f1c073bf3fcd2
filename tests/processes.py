"""Processes for tests of what several do together, started once: loading torch takes longer than any such test."""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


class Processes:
    """Up to `count` processes, each with one thread. Functions are ones at the top level of a module."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there,), daemon=True)
            process.start()
            there.close()
            self._ends.append(here)
            self._processes.append(process)

    def run(self, size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """`function(world, *arguments)` on each of `size` processes that form a group; the results by rank.

        What a process raises is its result.
        """
        with tempfile.TemporaryDirectory() as folder:
            for rank in range(size):
                self._ends[rank].send((str(Path(folder) / "store"), rank, size, function, arguments))
            return [end.recv() for end in self._ends[:size]]

    def close(self) -> None:
        for process in self._processes:
            process.kill()  # they have nothing to tidy up, and leaving torch in order takes seconds
            process.join()


def _serve(end: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            path, rank, size, function, arguments = end.recv()
        except EOFError:
            return
        with _group(path, rank, size):
            outcome = _outcome(function, arguments)
        end.send(outcome)  # now the group writes no more to the folder, which is removed


@contextmanager
def _group(path: str, rank: int, size: int) -> Iterator[None]:
    from torch import distributed

    store = distributed.FileStore(path, size)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    distributed.barrier()  # a function that asks nothing of the others must not leave before they are connected
    yield
    distributed.destroy_process_group()


def _outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    from bcnet.distributed import join_processes

    try:
        with join_processes() as world:
            return function(world, *arguments)
    except Exception as error:
        error.add_note(traceback.format_exc())
        return error
