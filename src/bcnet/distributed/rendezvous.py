"""Rendezvous: the processes of one start of a run find out that they belong together.

torchrun keeps its key-value store when it starts processes again, and what the dead ones wrote stays in it, for
instance where they listened. So every start agrees on a name of its own, under which it keeps its keys: a process says
hello with a word that nobody has used before and waits for the answer to that word; rank 0 answers every hello it sees,
also those of the dead, with the new name, until all ranks have been here under that name.
"""

from __future__ import annotations

import time
import uuid

from torch.distributed.distributed_c10d import Store

from bcnet.errors import ProcessError

_PAUSE = 0.01  # seconds between two looks


def own_rendezvous(store: Store, rank: int, size: int, patience: float) -> str:
    """The name of this start of `size` processes, the same for all of them and for nobody before.

    Raises:
        ProcessError: they were not complete after `patience` seconds.
    """
    end = time.monotonic() + patience
    return _receive(store, size, end) if rank == 0 else _come(store, rank, end)


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


def _come(store: Store, rank: int, end: float) -> str:
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
