"""Batches of images, drawn and prepared on the device that holds the images.

A batch is a pair: floats `(batch, C, H, W)`, normalised and channels-last, and int64 labels `(batch,)`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from bcnet.data.augmentation import Augmentation
from bcnet.data.big_images import ResizedCrop
from bcnet.data.files import FilePixels
from bcnet.data.images import Images, Normaliser
from bcnet.errors import DataError

Batch = tuple[torch.Tensor, torch.Tensor]
Part = Callable[[int], slice]  # of a number of images, those that are wanted


def _all(count: int) -> slice:
    return slice(0, count)


@dataclass(frozen=True, eq=False)
class TrainingBatches:
    """Epochs of shuffled, augmented batches of one size; the images left over at the end of an epoch are dropped.

    An epoch is a function of its generator alone. `len()` is the number of batches in an epoch. Of every batch the
    images of `part` are given, as they are in the whole batch.

    Raises:
        DataError: a batch size below 1, or more than there are images.
    """

    images: Images
    batch_size: int
    normaliser: Normaliser
    augmentation: Augmentation | ResizedCrop
    part: Part = _all

    def __post_init__(self) -> None:
        _check_batch_size(self.batch_size, len(self.images))

    def __len__(self) -> int:
        return len(self.images) // self.batch_size

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass over the images in an order of `generator`'s."""
        order = _permutation(len(self.images), generator).to(self.images.pixels.device)
        chunks = order[: len(self) * self.batch_size].view(-1, self.batch_size)[:, self.part(self.batch_size)]
        for index, pixels in zip(chunks, self._augmented(chunks, generator), strict=True):
            yield self.normaliser(pixels), self.images.labels[index]

    def _augmented(self, chunks: torch.Tensor, generator: torch.Generator) -> Iterator[torch.Tensor]:
        source, first = self.images.pixels, self.part(self.batch_size).start
        if isinstance(source, FilePixels):
            if isinstance(self.augmentation, ResizedCrop):  # every image draws for itself, from its place among all
                return source.batches(chunks.tolist(), self.augmentation, generator)
            raw = source.batches(chunks.tolist())
        else:
            raw = (source[index] for index in chunks)
        return (self.augmentation(pixels, generator, first=first, whole=self.batch_size) for pixels in raw)

    def shared(self, part: Part) -> TrainingBatches:
        """The same batches, of which one process prepares the images of `part` only."""
        return dataclasses.replace(self, part=part)


def fixed_batches(images: Images, batch_size: int, normaliser: Normaliser, *, seed: int = 0) -> list[Batch]:
    """Equal batches in one shuffled order, for scores that use each batch's own statistics.

    A smaller last batch would have other statistics, so the images left over, fewer than `batch_size`, are dropped.

    Raises:
        DataError: a batch size below 1, or more than there are images.
    """
    _check_batch_size(batch_size, len(images))
    order = _permutation(len(images), torch.Generator().manual_seed(seed)).to(images.pixels.device)
    whole = order[: len(images) // batch_size * batch_size].view(-1, batch_size)
    return [
        (normaliser(pixels), images.labels[index]) for index, pixels in zip(whole, _decoded(images, whole), strict=True)
    ]


def all_batches(images: Images, batch_size: int, normaliser: Normaliser) -> Iterator[Batch]:
    """Every image once, in order, the last batch as small as it comes: for networks with running statistics.

    Raises:
        DataError: a batch size below 1.
    """
    _check_batch_size(min(batch_size, len(images)), len(images))
    parts = torch.arange(len(images), device=images.labels.device).split(batch_size)  # type: ignore[no-untyped-call]
    return (
        (normaliser(pixels), images.labels[part]) for part, pixels in zip(parts, _decoded(images, parts), strict=True)
    )


def _decoded(images: Images, parts: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    source = images.pixels
    if isinstance(source, FilePixels):
        return source.batches([part.tolist() for part in parts])
    return (source[part] for part in parts)


def _permutation(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randperm(count, generator=generator, device=generator.device)


def _check_batch_size(batch_size: int, count: int) -> None:
    if batch_size < 1:
        raise DataError(f"a batch size is at least 1; got {batch_size}")
    if batch_size > count:
        raise DataError(
            f"a batch size is at most the number of images, {count} here; got {batch_size}: lower it "
            "(--set batch_size=...), or give more images"
        )
