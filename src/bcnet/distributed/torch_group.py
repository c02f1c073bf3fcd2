"""Process group on torch.distributed.

Gradients are summed by the process group's own reduction. Small values (decisions, scores, errors) are sent as JSON
through the key-value store of the group. The store needs no device, identifies the sender, and lets each process take
the next candidate when it is free. Nothing is pickled.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as format_safetensors
from torch import distributed
from torch.distributed.distributed_c10d import Store

from bcnet.distributed.process_group import Loaded, ProcessGroup, Tensors, failure_document, rebuilt_error
from bcnet.errors import ProcessError

_T = TypeVar("_T")
_R = TypeVar("_R")
PATIENCE = timedelta(minutes=30)  # for work that only rank 0 does: solving for the prior, testing, loading
_FAILED = "failed"
# pause between two polls, as a share of the wait so far, with bounds in seconds
_SHARE = 0.05
_SHORTEST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.05


class TorchProcessGroup(ProcessGroup):
    """One of `size` processes. `store` belongs to this group and is used once."""

    def __init__(self, rank: int, size: int, store: Store) -> None:
        self.rank = rank
        self.size = size
        self._store = store
        self._calls = itertools.count()  # equal on all processes, since all make the same calls

    def add_up(self, tensor: torch.Tensor) -> None:
        """See `ProcessGroup`."""
        with _in_touch():
            distributed.all_reduce(tensor)

    def on_rank_zero(self, function: Callable[[], _T]) -> _T:
        """See `ProcessGroup`."""
        key = self._next_key()
        if not self.is_rank_zero:
            value: _T = self._result(key)
            return value
        try:
            result = function()
        except Exception as error:
            self._store_outcome(key, failure_document(error))
            raise
        self._store_outcome(key, {"value": result})
        return result

    def tensors_from_rank_zero(self, function: Callable[[], Loaded | None]) -> Loaded | None:
        """See `ProcessGroup`."""
        loaded: Loaded | None = None
        content = torch.empty(0, dtype=torch.uint8)

        def load_content() -> list[Any] | None:
            nonlocal loaded, content
            loaded = function()
            if loaded is None:
                return None
            content = _pack(loaded[0])
            return [len(content), loaded[1]]

        header = self.on_rank_zero(load_content)
        if header is None:
            return None
        length, state = header
        content = self._broadcast(content if self.is_rank_zero else torch.empty(length, dtype=torch.uint8))
        return loaded if self.is_rank_zero else (parse_safetensors(content.numpy().tobytes()), state)

    def gather(self, value: _T) -> list[_T]:
        """See `ProcessGroup`."""
        key = self._next_key()
        self._store_outcome(f"{key}/{self.rank}", {"value": value})
        return [self._result(f"{key}/{rank}") for rank in range(self.size)]

    def check_same(self, values: Mapping[str, Any]) -> None:
        """See `ProcessGroup`."""
        first, *others = self.gather(dict(values))
        for rank, other in enumerate(others, 1):
            for what in (*first, *other):
                if first.get(what) != other.get(what):
                    raise ProcessError(
                        f"all processes of a run must have the same {what}; process 0 has {first.get(what)!r}, process "
                        f"{rank} has {other.get(what)!r}: give every machine the same command, files and versions"
                    )

    def map(self, function: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
        """See `ProcessGroup`. A free process takes the next item, so a slow one does not block the others."""
        jobs = list(items)
        key = self._next_key()
        return self._results(function, jobs, key)

    def _results(self, function: Callable[[_T], _R], jobs: list[_T], key: str) -> Iterator[_R]:
        failures: dict[int, Exception] = {}
        given = 0
        while (mine := self._take_turn(key)) < len(jobs):
            try:
                outcome: dict[str, Any] = {"value": function(jobs[mine])}
            except Exception as error:
                failures[mine] = error
                outcome = failure_document(error)
            self._store_outcome(f"{key}/{mine}", outcome)
            while given < len(jobs) and self._is_there(f"{key}/{given}"):
                yield self._result(f"{key}/{given}", failures.get(given))
                given += 1
        for number in range(given, len(jobs)):
            yield self._result(f"{key}/{number}", failures.get(number))

    def fail(self) -> bool:
        """Signal a failure to the others. True for the first process to do so, False if the store is unreachable."""
        try:
            return int(self._store.add(_FAILED, 1)) == 1
        except RuntimeError:
            return False

    def shutdown_barrier(self) -> None:
        """Wait on rank 0 until all others have arrived, since the store may live in its process."""
        self._store_outcome(f"end/{self.rank}", {"value": None})
        if self.is_rank_zero:
            for rank in range(self.size):
                self._result(f"end/{rank}")

    def _next_key(self) -> str:
        return str(next(self._calls))

    def _take_turn(self, key: str) -> int:
        with _in_touch():
            return int(self._store.add(f"{key}/taken", 1)) - 1

    def _is_there(self, key: str) -> bool:
        with _in_touch():
            return bool(self._store.check([key]))

    def _store_outcome(self, key: str, outcome: dict[str, Any]) -> None:
        with _in_touch():
            self._store.set(key, json.dumps(outcome))

    def _result(self, key: str, failure: Exception | None = None) -> Any:
        """Wait for the result under `key`; raise it if it is a failure (this process's own one unchanged)."""
        if failure is not None:
            raise failure
        with _in_touch():
            self._wait(key)
            outcome = json.loads(self._store.get(key))
        if "failure" in outcome:
            raise rebuilt_error(*outcome["failure"])
        return outcome["value"]

    def _wait(self, key: str) -> None:
        """Poll for `key`; waiting in the store itself would block Ctrl-C and hide failures elsewhere."""
        start = time.monotonic()
        while not self._store.check([key]):
            waited = time.monotonic() - start
            if self._store.check([_FAILED]) and not self._store.check([key]):
                raise distributed.DistError("it stopped with an error of its own")
            if waited > PATIENCE.total_seconds():
                raise distributed.DistError(f"nothing heard for {PATIENCE}")
            time.sleep(min(_SHORTEST_PAUSE + _SHARE * waited, _LONGEST_PAUSE))

    def _broadcast(self, content: torch.Tensor) -> torch.Tensor:
        """Return rank 0's bytes on the CPU; `content` has the same length on every process."""
        on_gpu = distributed.get_backend() == "nccl"  # an existing group without a CPU backend
        moved = content.cuda() if on_gpu else content
        with _in_touch():
            distributed.broadcast(moved, src=0)
        return moved.cpu()


def _pack(tensors: Tensors) -> torch.Tensor:
    """Return the bytes of a safetensors file, uint8 `(bytes,)` on the CPU."""
    content = format_safetensors({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()})
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


@contextmanager
def _in_touch() -> Iterator[None]:
    """Convert the errors of torch.distributed, which all mean that a process has ended."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ProcessError(
            f"another process of this run has ended or is out of reach ({reason}): the same command goes on from what "
            "was finished, and torchrun --max-restarts repeats it by itself"
        ) from error
