"""Training data as the loop sees it, whole or shared among processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch

from bcnet.distributed import ProcessGroup
from bcnet.nests import Nest, count, take_images

Batch = tuple[Nest, Any]
Part = Callable[[int], slice]


class EpochBatches(Protocol):
    """Training data: `len` batches an epoch, in an order drawn from a generator."""

    def __len__(self) -> int: ...

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass: inputs `(batch, ...)`, images usually, and targets, labels `(batch,)` usually."""
        ...


@runtime_checkable
class ShareableBatches(EpochBatches, Protocol):
    """Training data that can prepare a part of every batch alone, so that processes share that work too."""

    def share(self, part: Part) -> EpochBatches:
        """Return the same batches, but of each only the images `part(batch size)`."""
        ...


@dataclass(frozen=True)
class FirstBatches:
    """The first batches of every epoch, a `share` of them and one at least."""

    batches: EpochBatches
    share: float

    def __len__(self) -> int:
        return max(1, round(self.share * len(self.batches)))

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """Return the first batches of that epoch."""
        return islice(self.batches.epoch(generator), len(self))


def share_of(batches: EpochBatches, world: ProcessGroup) -> EpochBatches:
    """This process's part of every batch, which may be empty; all parts together are the batch, in order."""
    if world.size == 1:
        return batches
    return batches.share(world.part) if isinstance(batches, ShareableBatches) else _Cut(batches, world.part)


@dataclass(frozen=True)
class _Cut:
    """Batches of which every process prepares the whole, and takes its part."""

    batches: EpochBatches
    part: Part

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        for x, y in self.batches.epoch(generator):
            mine = self.part(count(y))
            yield take_images(x, mine), take_images(y, mine)
