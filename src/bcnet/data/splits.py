"""Class-balanced splits of labelled images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from bcnet.data.conversion import in_words
from bcnet.data.files import FilePixels
from bcnet.data.images import DataSet, Images, SomeImages
from bcnet.errors import DataError

TRAINING_NAMES = ("train", "training")
VALIDATION_NAMES = ("val", "valid", "validation", "dev", "eval")
TEST_NAMES = ("test", "testing", *VALIDATION_NAMES)
"""Usual names of splits, in any case; of several test splits the first in this list is used."""

_LABELS = "labels must be integers, the class numbers from 0, or words"
_MOST_LISTED = 10  # classes
_TEST_SHARE = 0.2  # of sources without test images
_Split = TypeVar("_Split")


def named_split(splits: Mapping[str, _Split], names: Sequence[str], where: str) -> tuple[str, _Split] | None:
    """Return the split with one of `names`, in any case, and its actual name; None if there is none.

    Raises:
        DataError: two split names differ only in case.
    """
    for name in names:
        found = [own for own in splits if own.lower() == name]
        if len(found) > 1:
            raise DataError(
                f"the splits of a data set must have different names; got {' and '.join(sorted(found))} in {where}: "
                "merge or rename them"
            )
        if found:
            return found[0], splits[found[0]]
    return None


def usual_parts(splits: Mapping[str, _Split], where: str) -> dict[str, tuple[str, _Split]]:
    """Return the training, validation and test splits that exist, each with its actual name.

    If there is a validation but no test split, it is used as the test split.

    Raises:
        DataError: as `named_split`.
    """
    names = {"training": TRAINING_NAMES, "validation": VALIDATION_NAMES, "test": TEST_NAMES}
    found = {part: named_split(splits, usual, where) for part, usual in names.items()}
    if found["validation"] == found["test"]:
        found["validation"] = None
    return {part: split for part, split in found.items() if split is not None}


def number_classes(labels: Mapping[str, Sequence[Any]], name: str) -> tuple[list[str] | None, dict[str, torch.Tensor]]:
    """Return the labels of every part as class numbers, int64 `(n,)`, and their names if they were words.

    Words among the training labels are numbered alphabetically.

    Raises:
        DataError: labels of another type, or words that training lacks.
    """
    names = sorted({str(label) for label in labels["training"] if isinstance(label, (str, bool))})
    places = {word: number for number, word in enumerate(names)}
    found = {}
    for part, values in labels.items():
        numbers = []
        for index, value in enumerate(values):
            word = isinstance(value, (str, bool))
            number = places.get(str(value)) if word else value
            if not isinstance(number, int) or number < 0 or (names and not word):
                wanted = "all images must be of the classes of training" if word and names else _LABELS
                raise DataError(f"{wanted}; got {value!r} for {name}, {part}: image {index}")
            numbers.append(number)
        found[part] = torch.tensor(numbers, dtype=torch.int64)
    return names or None, found


def what_was_read(classes: int, read: Mapping[str, int], unread: Sequence[str]) -> str:
    """Return a note on the number of images by source, and on what was ignored."""
    counts = [f"{count} images in {place}" for place, count in read.items()]
    listed = " and ".join(counts) if len(counts) < 3 else f"{', '.join(counts[:-1])} and {counts[-1]}"
    left = f"; left unread: {in_words(unread)}" if unread else ""
    return f"{classes} classes, {listed}{left}."


def data_set(parts: Mapping[str, SomeImages], *, name: str, class_names: Sequence[str] | None, note: str) -> DataSet:
    """Return a data set of training, validation and test images; `note` says what was read.

    Without test images a fixed fifth of every class is held out. Images in files that score or test are read once now,
    since an unreadable one would otherwise be found after hours of training.

    Raises:
        DataError: an unreadable image, or as for `DataSet`.
    """
    given = dict(parts)
    notes = [note]
    if "test" not in given:
        given["training"], given["test"], held_note = hold_out(given["training"])
        notes.append(held_note)
    for pixels, _ in (given[part] for part in ("validation", "test") if part in given):
        if isinstance(pixels, FilePixels):
            pixels.check_readable()
    trained = set(given["training"][1].tolist())
    for part in ("validation", "test"):
        if part in given and (absent := sorted(trained - set(given[part][1].tolist()))):
            known = class_names or range(max(trained) + 1)
            listed = in_words(known[c] for c in absent[:_MOST_LISTED] if c < len(known))
            more = f" and {len(absent) - _MOST_LISTED} more classes" if len(absent) > _MOST_LISTED else ""
            notes.append(f"There are no {part} images of {listed}{more}.")
    return DataSet.from_tensors(
        given["training"],
        given["test"],
        name=name,
        class_names=class_names,
        notes=notes,
        validation=given.get("validation"),
    )


def split_validation(images: Images, fraction: float = 0.1, *, seed: int = 0) -> tuple[Images, Images]:
    """Split `images` into a training and a validation part with the same class frequencies.

    The validation part has `round(fraction * n)` images, and of every class `fraction` of its images, rounded up or
    down. At least one image of every class stays for training, which may make the part smaller. Both parts keep the
    order of the images.

    Raises:
        DataError: a fraction outside (0, 1), or one that leaves no validation image.
    """
    held_out = stratified_mask(images.labels.cpu(), fraction, seed)
    return images.subset((~held_out).nonzero().flatten()), images.subset(held_out.nonzero().flatten())


def hold_out(data: SomeImages) -> tuple[SomeImages, SomeImages, str]:
    """Return training images, test images (a fixed fifth of every class), and a note."""
    pixels, labels = data
    mask = stratified_mask(labels, _TEST_SHARE, seed=0)
    note = f"There are no test images: a fixed fifth of every class is held out, {int(mask.sum())} of {len(mask)}"
    kept = (~mask).nonzero().flatten()
    held = mask.nonzero().flatten()
    if isinstance(pixels, FilePixels):
        return (pixels.subset(kept), labels[kept]), (pixels.subset(held), labels[held]), note
    return (pixels[kept], labels[kept]), (pixels[held], labels[held]), note


def stratified_mask(labels: torch.Tensor, fraction: float, seed: int) -> torch.Tensor:
    """Return the mask of a class-balanced held-out part: bool `(n,)` for int64 `labels` `(n,)` on the CPU.

    Raises:
        DataError: as `split_validation`.
    """
    if not 0 < fraction < 1:
        raise DataError(f"the fraction to hold out must be between 0 and 1; got {fraction!r}: 0.1 holds out a tenth")
    classes, membership, sizes = np.unique(labels.numpy(), return_inverse=True, return_counts=True)
    quotas = _quotas(sizes.tolist(), fraction)
    if not any(quotas):
        raise DataError(
            f"holding out needs at least one image, and one of its class to stay; got {fraction!r} of {len(labels)} "
            f"images in {len(classes)} classes: give more images or a larger fraction"
        )
    generator = torch.Generator().manual_seed(seed)
    mask = torch.zeros(len(labels), dtype=torch.bool)
    for index, quota in enumerate(quotas):
        members = torch.from_numpy((membership == index).nonzero()[0])
        mask[members[torch.randperm(len(members), generator=generator)[:quota]]] = True
    return mask


def strata(labels: torch.Tensor | None, count: int) -> torch.Tensor:
    """Return the classes to balance a held-out part by, int64 `(count,)`; a single one without two images per class."""
    if labels is not None and 2 * len(set(labels.tolist())) <= count:
        return labels
    return torch.zeros(count, dtype=torch.int64)


def _quotas(counts: list[int], fraction: float) -> list[int]:
    """Return the number of held-out images per class.

    The largest remainders are rounded up until the total is reached.
    """
    shares = [round(fraction * count, 9) for count in counts]  # 0.29 * 100 is 28.999999999999996
    quotas = [min(int(share), count - 1) for share, count in zip(shares, counts, strict=True)]
    missing = round(fraction * sum(counts)) - sum(quotas)
    by_remainder = sorted(range(len(counts)), key=lambda index: shares[index] % 1, reverse=True)
    for index in by_remainder:
        if missing > 0 and shares[index] % 1 > 0 and quotas[index] < counts[index] - 1:
            quotas[index] += 1
            missing -= 1
    return quotas
