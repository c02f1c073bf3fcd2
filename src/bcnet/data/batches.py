"""Batches of images, drawn and prepared on their device.

A batch is a pair of floats `(batch, C, H, W)`, normalised and channels-last, and int64 labels `(batch,)`. Images that
are on the device are only indexed. Otherwise the bytes of each batch are copied there without making the host wait. The
content of a batch does not depend on where the images are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bcnet.data.augmentation import Augmentation
from bcnet.data.big_images import ResizedCrop
from bcnet.data.files import FilePixels
from bcnet.data.images import Images, Normaliser
from bcnet.data.transfer import move
from bcnet.errors import DataError
from bcnet.pytree import Pytree

Batch = tuple[Pytree, Any]  # inputs and targets; two tensors for images by name
Pixels = tuple[torch.Tensor, torch.Tensor]  # images and labels
Part = Callable[[int], slice]  # maps a number of images to the requested part


def _whole_range(count: int) -> slice:
    return slice(0, count)


@dataclass(frozen=True, eq=False)
class TrainingBatches:
    """Epochs of shuffled, augmented batches of one size; images left over at the end of an epoch are dropped.

    An epoch is a function of its generator only. `len()` is the number of batches per epoch. Only the images `part` of
    each batch are returned, equal to those in the whole batch. They are on `device`, by default that of the images.

    Raises:
        DataError: the batch size is below 1, or larger than the number of images.
    """

    images: Images
    batch_size: int
    normaliser: Normaliser
    augmentation: Augmentation | ResizedCrop
    part: Part = _whole_range
    device: torch.device | str | None = None

    def __post_init__(self) -> None:
        _check_batch_size(self.batch_size, len(self.images))

    def __len__(self) -> int:
        return len(self.images) // self.batch_size

    def epoch(self, generator: torch.Generator) -> Iterator[Pixels]:
        """Iterate over the images in an order drawn from `generator`."""
        order = move(_permutation(len(self.images), generator), self.images.labels.device)
        chunks = order[: len(self) * self.batch_size].view(-1, self.batch_size)[:, self.part(self.batch_size)]
        in_files = isinstance(self.images.pixels, FilePixels)
        first = self.part(self.batch_size).start
        whole = self.batch_size
        # When images are decoded, each draws on its own, from its index among all.
        crop = self.augmentation if in_files and isinstance(self.augmentation, ResizedCrop) else None
        for pixels, labels in _raw_batches(self.images, list(chunks), self.device, crop, generator):
            if crop is None:
                pixels = self.augmentation(pixels, generator, first=first, whole=whole)
            yield self.normaliser(pixels), labels

    def share(self, part: Part) -> TrainingBatches:
        """Return the same batches, of which one process prepares only the images `part`."""
        return dataclasses.replace(self, part=part)


def fixed_batches(
    images: Images,
    batch_size: int,
    normaliser: Normaliser,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> list[Pixels]:
    """Return equal batches in one shuffled order, for scores that use each batch's own statistics.

    A smaller last batch would have other statistics, so fewer than `batch_size` remaining images are dropped. Batches
    are on `device`, by default that of the images.

    Raises:
        DataError: the batch size is below 1, or larger than the number of images.
    """
    _check_batch_size(batch_size, len(images))
    order = move(_permutation(len(images), torch.Generator().manual_seed(seed)), images.labels.device)
    whole = order[: len(images) // batch_size * batch_size].view(-1, batch_size)
    return [(normaliser(pixels), labels) for pixels, labels in _raw_batches(images, list(whole), device)]


def all_batches(
    images: Images, batch_size: int, normaliser: Normaliser, *, device: torch.device | str | None = None
) -> Iterator[Pixels]:
    """Iterate over all images in order, with a possibly smaller last batch, for networks with running statistics.

    Batches are on `device`, by default that of the images.

    Raises:
        DataError: the batch size is below 1.
    """
    _check_batch_size(min(batch_size, len(images)), len(images))
    parts = torch.arange(len(images), device=images.labels.device).split(batch_size)  # type: ignore[no-untyped-call]
    return ((normaliser(pixels), labels) for pixels, labels in _raw_batches(images, parts, device))


def _raw_batches(
    images: Images,
    chunks: Sequence[torch.Tensor],
    device: torch.device | str | None,
    crop: ResizedCrop | None = None,
    generator: torch.Generator | None = None,
) -> Iterator[Pixels]:
    """Iterate over bytes and labels of each chunk on `device`; images in files are cropped when they are decoded."""
    source = images.pixels
    labels = images.labels
    place = torch.device(device or labels.device)
    if isinstance(source, FilePixels):
        pixels = source.batches([chunk.tolist() for chunk in chunks], crop, generator, pinned=place.type != "cpu")
    else:
        pixels = (source[chunk] for chunk in chunks)
    return ((move(x, place), move(labels[chunk], place)) for x, chunk in zip(pixels, chunks, strict=True))


def _permutation(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randperm(count, generator=generator, device=generator.device)


def _check_batch_size(batch_size: int, count: int) -> None:
    if batch_size < 1:
        raise DataError(f"a batch size must be at least 1; got {batch_size}")
    if batch_size > count:
        raise DataError(
            f"a batch size must be at most the number of images, {count} here; got {batch_size}: lower it "
            "(--set batch_size=...), or give more images"
        )
