"""Process groups: one process, or several that share steps and candidates.

All processes of a run execute the same calls in the same order. Decisions that depend on the environment (files,
clocks) are made by rank 0 and sent to the others; only rank 0 writes. `ProcessGroup` itself is the group of one
process. Errors travel between processes as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch

from bcnet import errors
from bcnet.errors import BCNetError, ProcessError
from bcnet.pytree import nth_part


def failure_document(error: Exception) -> dict[str, Any]:
    """Return the error as plain data under "failure", the arguments of `rebuilt_error`."""
    return {"failure": [type(error).__name__, str(error)]}


def rebuilt_error(kind: str, message: str) -> BCNetError:
    """Return the error of another process."""
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, BCNetError):
        return known(message)
    return ProcessError(f"another process of this run failed with {kind}: {message}")


_T = TypeVar("_T")
_R = TypeVar("_R")
Tensors = dict[str, torch.Tensor]
Loaded = tuple[Tensors, dict[str, Any]]  # tensors by name, and a state of JSON values


class ProcessGroup:
    """Single-process group; every collective is a no-op. Several processes: `bcnet.distributed.join_processes`."""

    rank: int = 0
    size: int = 1

    @property
    def is_rank_zero(self) -> bool:
        """Return whether this process reads and writes files."""
        return self.rank == 0

    def part(self, count: int) -> slice:
        """Return this process's share of `count` items in order (`nth_part`)."""
        return nth_part(count, self.rank, self.size)

    def add_up(self, tensor: torch.Tensor) -> None:
        """Replace `tensor` by the sum over all processes, bitwise equal on each.

        Raises:
            ProcessError: another process has ended.
        """

    def on_rank_zero(self, function: Callable[[], _T]) -> _T:
        """Return on every process what `function` returns or raises on rank 0; it returns JSON values."""
        return function()

    def tensors_from_rank_zero(self, function: Callable[[], Loaded | None]) -> Loaded | None:
        """Return on every process what `function` returns or raises on rank 0; tensors arrive on the CPU."""
        return function()

    def gather(self, value: _T) -> list[_T]:
        """Return the JSON values of all processes, by rank."""
        return [value]

    def check_same(self, values: Mapping[str, Any]) -> None:
        """Check that all processes have equal JSON values; names are for messages.

        Raises:
            ProcessError: on every process, if any value differs.
        """

    def map(self, function: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
        """Like the builtin `map`, with the calls distributed over the processes; `function` returns JSON values.

        Every process gets all results in the order of `items`; an exception in any process is raised in all of them, at
        its place in the order.
        """
        return map(function, items)
