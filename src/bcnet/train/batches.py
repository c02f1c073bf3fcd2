"""Training data as the loop sees them, whole or shared among processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch

from bcnet.distributed import ProcessGroup
from bcnet.pytree import Pytree, count, slice_batch

Batch = tuple[Pytree, Any]
Part = Callable[[int], slice]


class EpochBatches(Protocol):
    """Training data: `len` batches per epoch, in an order drawn from a generator."""

    def __len__(self) -> int: ...

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """Iterate over inputs `(batch, ...)`, usually images, and targets, usually labels `(batch,)`."""
        ...


@runtime_checkable
class ShareableBatches(EpochBatches, Protocol):
    """Training data that can prepare a part of every batch, so that processes share that work."""

    def share(self, part: Part) -> EpochBatches:
        """Return the same batches, each with only the images `part(batch size)`."""
        ...


@dataclass(frozen=True)
class FirstBatches:
    """A `share` of the batches of every epoch: the first ones, at least one."""

    batches: EpochBatches
    share: float

    def __len__(self) -> int:
        return max(1, round(self.share * len(self.batches)))

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """Iterate over the first batches of that epoch."""
        return islice(self.batches.epoch(generator), len(self))


def share_of(batches: EpochBatches, world: ProcessGroup) -> EpochBatches:
    """Return this process's part of every batch, possibly empty; all parts in order make up the batch."""
    if world.size == 1:
        return batches
    return batches.share(world.part) if isinstance(batches, ShareableBatches) else _Cut(batches, world.part)


@dataclass(frozen=True)
class _Cut:
    """Batches that every process prepares as a whole and then slices."""

    batches: EpochBatches
    part: Part

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        for x, y in self.batches.epoch(generator):
            mine = self.part(count(y))
            yield slice_batch(x, mine), slice_batch(y, mine)
