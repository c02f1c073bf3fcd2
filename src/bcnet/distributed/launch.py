"""Connect the processes of a run: those started by torchrun, or an existing process group.

torchrun keeps its key-value store when it restarts processes, and entries of dead processes stay in it. Every start
therefore agrees on a new name, under which it keeps its keys: each process writes a hello with a unique word and waits
for the answer to that word. Rank 0 answers every hello it finds, including those of dead processes, with the new name,
until all ranks have joined under that name.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store
from torch.distributed.rendezvous import rendezvous

from bcnet.distributed.process_group import ProcessGroup
from bcnet.distributed.torch_group import PATIENCE, TorchProcessGroup
from bcnet.errors import ProcessError

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_PAUSE = 0.01  # seconds between two polls


def is_rank_zero() -> bool:
    """Return whether this process has rank 0 under torchrun or in the existing process group.

    True for a single process.
    """
    if distributed.is_initialized():
        return distributed.get_rank() == 0
    return not all(os.environ.get(name) for name in _ENVIRONMENT) or os.environ["RANK"] == "0"


@contextmanager
def join_processes(device: str | None = None) -> Iterator[ProcessGroup]:
    """Connect to the processes started by torchrun for the duration of the context; without torchrun, a group of one.

    The process group is created from torchrun's environment (gloo for CPU tensors, NCCL for GPU tensors) and destroyed
    at the end; an existing one is used and kept. `device` is the tensors' device, by default a GPU if available: each
    process uses the GPU of its local rank. An exception that leaves the context has an attribute `repeated`: True if
    another process failed before, so that only one error needs to be shown.

    Raises:
        ProcessError: the processes cannot connect, or a machine has fewer GPUs than processes.
    """
    exists = distributed.is_initialized()
    if not exists and not all(os.environ.get(name) for name in _ENVIRONMENT):
        yield ProcessGroup()
        return
    with _own_gpu(device):
        if not exists:
            _start_group()
        try:
            yield from _working_together()
        finally:
            if not exists:
                distributed.destroy_process_group()


def _working_together() -> Iterator[ProcessGroup]:
    rank = distributed.get_rank()
    store = _get_default_store()
    use = store.add(f"bcnet/uses/{rank}", 1)  # equal on all processes, so keys of earlier uses do not interfere
    group = TorchProcessGroup(rank, distributed.get_world_size(), PrefixStore(f"bcnet/{use}", store))
    try:
        yield group
    except BaseException as error:
        error.repeated = not group.fail()  # type: ignore[attr-defined]
        raise
    group.shutdown_barrier()


def _start_group() -> None:
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and distributed.is_nccl_available() else "gloo"
    try:
        store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
        start = own_rendezvous(store, rank, size, PATIENCE.total_seconds())
        own = PrefixStore(f"start {start}", store)
        distributed.init_process_group(backend, store=own, rank=rank, world_size=size, timeout=PATIENCE)
    except (RuntimeError, ValueError, OSError) as error:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        reason = str(error).splitlines()[0]
        raise ProcessError(
            f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} found no others at {address}: {reason}: "
            "start them with torchrun, which sets these variables"
        ) from error


@contextmanager
def _own_gpu(device: str | None) -> Iterator[None]:
    if device == "cpu" or not torch.cuda.is_available():
        yield
        return
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    gpus = torch.cuda.device_count()
    if here > gpus:
        raise ProcessError(
            f"every process takes a GPU of its own; got {here} processes for {gpus} GPUs: lower --nproc-per-node, or "
            "give --device cpu"
        )
    if here > 1 and device is not None and ":" in device:
        raise ProcessError(f"{here} processes take a GPU each; got device {device!r} for all: give cuda, or cpu")
    with torch.cuda.device(int(os.environ.get("LOCAL_RANK", "0"))):
        yield


def own_rendezvous(store: Store, rank: int, size: int, patience: float) -> str:
    """Return the name of this start of `size` processes, the same on all of them and never used before.

    Raises:
        ProcessError: not all processes joined within `patience` seconds.
    """
    end = time.monotonic() + patience
    return _receive(store, size, end) if rank == 0 else _join(store, rank, end)


def _receive(store: Store, size: int, end: float) -> str:
    name = uuid.uuid4().hex
    missing = set(range(1, size))
    answered: set[str] = set()
    while missing:
        for rank in sorted(missing):
            if store.check([f"hello/{rank}"]):
                word = store.get(f"hello/{rank}").decode()
                if word not in answered:
                    answered.add(word)
                    store.set(f"answer/{word}", name)
            if store.check([f"here/{name}/{rank}"]):
                missing.discard(rank)
        _pause(end, f"processes {', '.join(map(str, sorted(missing)))} of {size} did not come" if missing else "")
    return name


def _join(store: Store, rank: int, end: float) -> str:
    word = uuid.uuid4().hex
    store.set(f"hello/{rank}", word)
    while not store.check([f"answer/{word}"]):
        _pause(end, "process 0 did not come")
    name = store.get(f"answer/{word}").decode()
    store.set(f"here/{name}/{rank}", "1")
    return name


def _pause(end: float, missing: str) -> None:
    if missing and time.monotonic() > end:
        raise ProcessError(f"{missing}: start all of them with torchrun, and see what the others say")
    time.sleep(_PAUSE)
