"""The processes of a run: one, or several that share its steps and its candidates.

All processes of a run execute the same calls in the same order. What depends on the outside (files, clocks) is decided
by rank 0 and told to the others; only rank 0 writes. `ProcessGroup` itself is that of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch

from bcnet.nests import nth_part

_T = TypeVar("_T")
_R = TypeVar("_R")
Tensors = dict[str, torch.Tensor]
Loaded = tuple[Tensors, dict[str, Any]]  # tensors by name, and a state of plain JSON values


class ProcessGroup:
    """Single-process group; every collective is a no-op. Several processes: `bcnet.distributed.join_processes`."""

    rank: int = 0
    size: int = 1

    @property
    def is_rank_zero(self) -> bool:
        """Return whether this process is the one that reads and writes files."""
        return self.rank == 0

    def part(self, count: int) -> slice:
        """This process's share of `count` things in order (`nth_part`)."""
        return nth_part(count, self.rank, self.size)

    def add_up(self, tensor: torch.Tensor) -> None:
        """Replace `tensor` by the sum of those of all processes, bitwise the same on each.

        Raises:
            ProcessError: another process has gone.
        """

    def on_rank_zero(self, function: Callable[[], _T]) -> _T:
        """Return what `function` returns on rank 0, or raises there, on every process. It returns plain JSON values."""
        return function()

    def tensors_from_rank_zero(self, function: Callable[[], Loaded | None]) -> Loaded | None:
        """Return what `function` returns on rank 0, or raises there, on every process: tensors arrive on the CPU."""
        return function()

    def gather(self, value: _T) -> list[_T]:
        """The plain JSON values of all processes, by rank."""
        return [value]

    def check_same(self, values: Mapping[str, Any]) -> None:
        """Make sure that all processes have the same plain JSON values under the names that people know them by.

        Raises:
            ProcessError: on every process, where one differs.
        """

    def map(self, function: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
        """Do what the builtin `map` does, the calls spread over the processes; `function` returns plain JSON values.

        Every process gets all results, in the order of `items`; what `function` raises anywhere is raised everywhere,
        at its place in the order.
        """
        return map(function, items)
