"""Images and labels from an `.npz` file, with the array names of Keras or MedMNIST."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bcnet.data.conversion import channel_axis, in_words, read_items
from bcnet.data.images import DataSet
from bcnet.data.splits import data_set, number_classes, usual_parts, what_was_read
from bcnet.errors import DataError

_KINDS = {
    **dict.fromkeys(("x", "images", "image", "imgs", "data", "inputs"), "images"),
    **dict.fromkeys(("y", "labels", "label", "targets", "target"), "labels"),
}
_CHANNELS = (1, 3)
_EXPECTED = (
    "arrays called x_train, y_train, x_test and y_test, or train_images, train_labels, ..., or images and labels"
)


def load_arrays(path: Path, image_size: int | None) -> DataSet:
    """Load images and labels from the arrays of an `.npz` file; pickles are never loaded.

    Images are bytes, or floats in [0, 1], `(n, H, W)`, `(n, H, W, C)` or `(n, C, H, W)` with one or three channels.
    Labels `(n,)` or `(n, 1)` are class numbers or words. An array's name combines a word for its content (`x`,
    `images`, `data`; `y`, `labels`, `targets`) and one for the split, in any order; without a split, all images are for
    training. If there are a validation and a test split, the former scores candidates. Without test images, a fixed
    fifth of every class is held out.

    Raises:
        DataError: no such file, arrays with other names, or unsuitable images or labels.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            splits, unread = _splits_of(list(archive.files), str(path))
            arrays = {split: tuple(archive[name] for name in names) for split, names in splits.items()}
    except DataError:
        raise
    except Exception as error:  # a corrupt file makes NumPy and zipfile raise errors of any type
        raise DataError(
            f"npz:PATH takes an .npz file of arrays of numbers; {str(path)!r} could not be read: {error}"
        ) from None
    found = usual_parts(arrays, str(path))
    if "training" not in found:
        raise DataError(f"npz:PATH takes {_EXPECTED}; got the splits {in_words(arrays)} in {str(path)!r}")
    places = {part: f"npz:{path}, {split}" for part, (split, _) in found.items()}
    flat = {part: _flat_labels(labels, len(images), places[part]) for part, (_, (images, labels)) in found.items()}
    class_names, numbers = number_classes(flat, f"npz:{path}")
    counts = {split: len(flat[part]) for part, (split, _) in found.items()}
    parts = {}
    for part, (_, (images, _)) in found.items():
        pairs = zip(_as_images(images, places[part]), numbers[part].tolist(), strict=True)
        parts[part] = read_items(pairs, places[part], image_size)
    return data_set(
        parts,
        name=f"npz:{path}",
        class_names=class_names,
        note=what_was_read(len(set(numbers["training"].tolist())), counts, [*unread, *({*arrays} - {*counts})]),
    )


def _splits_of(names: list[str], place: str) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Return the names of images and labels by split, and the names of other arrays."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    unread = []
    for name in names:
        words = re.split(r"[^A-Za-z0-9]+", name)
        kinds = [_KINDS[word.lower()] for word in words if word.lower() in _KINDS]
        if len(kinds) != 1:
            unread.append(name)
            continue
        # What remains of "train_images" or "x_test" without the word for images or labels is the split.
        split = "_".join(word for word in words if word.lower() not in _KINDS) or "train"
        if kinds[0] in found[split]:
            raise DataError(f"npz:PATH takes {_EXPECTED}; got two of {kinds[0]}, {found[split][kinds[0]]} and {name}")
        found[split][kinds[0]] = name
    whole = {split: (of["images"], of["labels"]) for split, of in found.items() if len(of) == 2}
    if not whole:
        raise DataError(f"npz:PATH takes {_EXPECTED}; got {in_words(names) or 'none'} in {place!r}: rename yours")
    return whole, [*unread, *(name for split, of in found.items() if split not in whole for name in of.values())]


def _as_images(images: npt.NDArray[Any], place: str) -> npt.NDArray[np.uint8] | torch.Tensor:
    """Return bytes `(n, H, W)` or `(n, H, W, C)`, or float tensors `(n, C, H, W)`."""
    axis = channel_axis(images.shape)
    if images.ndim != 3 and (axis is None or images.shape[axis] not in _CHANNELS):
        raise DataError(
            f"images must be arrays (n, H, W), (n, H, W, C) or (n, C, H, W) of 1 or 3 channels; got {images.shape} for "
            f"{place}"
        )
    if images.dtype.kind == "f":
        array = images
        if images.ndim == 3:
            array = images[:, None]
        elif axis == 3:
            array = np.moveaxis(images, 3, 1)
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    if images.dtype != np.uint8:
        raise DataError(f"images must be bytes, or floats in [0, 1]; got {images.dtype} for {place}: convert them")
    return np.moveaxis(images, 1, 3) if axis == 1 else images


def _flat_labels(labels: npt.NDArray[Any], count: int, place: str) -> list[Any]:
    if labels.ndim not in (1, 2) or labels.size != count:
        raise DataError(
            f"there must be one label for each image, (n,) or (n, 1); got {labels.shape} for {count} images in "
            f"{place}: of several labels for an image take one, or give bcnet.search the arrays and a task of your own"
        )
    flat = labels.reshape(-1)
    found: list[Any] = (np.char.decode(flat, errors="replace") if flat.dtype.kind == "S" else flat).tolist()
    return found
