"""Images from torch `Dataset`s and `DataLoader`s with various item formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import count as count_up
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler

from bcnet.data.decoding import Bytes, Labelled, eight_bits, fit, stack
from bcnet.errors import BCNetError, DataError, last_line

IMAGE_COLUMNS = ("image", "img", "image.bytes", "pixel_values")
LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "targets")
"""Names of images and labels in tables, items and batches; the first one present is used."""

_CHANNELS = ((1, 3), (4,))  # of images, the usual ones first
_AS_THEY_COME = "give bcnet.search the data sets themselves, (train, test), which are used unchanged"


def in_words(names: Iterable[Any]) -> str:
    """Return names from a file in one line."""
    return ", ".join(str(name) if str(name).isprintable() else repr(name) for name in names)


def column_of(name: str, columns: Iterable[Any], candidates: Sequence[str]) -> str:
    """Return the first of the `candidates` among the columns of the table `name`.

    Raises:
        DataError: none is present.
    """
    there = list(columns)
    found = next((column for column in candidates if column in there), None)
    if found is None:
        got = in_words(there) or "nothing"
        raise DataError(f"{name} needs a column called {' or '.join(candidates)}; got {got}: rename yours")
    return found


def split_dict(batch: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """Return the inputs of a batch dict (unwrapped if there is one), and its values under label names."""
    targets = [value for name, value in batch.items() if name in LABEL_COLUMNS]
    inputs = {name: value for name, value in batch.items() if name not in LABEL_COLUMNS}
    return (next(iter(inputs.values())) if len(inputs) == 1 else inputs), targets


def are_images(data: Any) -> bool:
    """Return whether the first item is an image with a class number, as `read_items` accepts them.

    A source without indexing is assumed to hold images, since it can be read once only.
    """
    if not isinstance(data, Sized) or not hasattr(data, "__getitem__") or len(data) == 0:
        return True
    try:
        picture, label = _pair_of(data[0], "item 0")
        _label(label, "item 0")
        _image(picture, "item 0")
    except DataError:
        return False
    return True


def channel_axis(shape: Sequence[int]) -> int | None:
    """Return the channel axis (size 1 or 3) of images `(n, ...)` of this shape, or None."""
    if len(shape) != 4:
        return None
    return next((axis for counts in _CHANNELS for axis in (3, 1) if shape[axis] in counts), None)


def read_items(source: Iterable[Any], name: str, image_size: int | None) -> Labelled:
    """Return pixels and labels of the `(image, label)` pairs of a torch `Dataset`, a `DataLoader` or an iterable.

    Raises:
        DataError: as `DataSet.from_datasets`.
    """
    labels: list[int] = []

    def failure(index: int, reason: str) -> str:
        place = f"the batch that begins with image {index}" if isinstance(source, DataLoader) else f"image {index}"
        return (
            f"every image must be readable; {name} failed at {place}: {reason}: fix that item of the data set and run "
            "the same command again"
        )

    def images() -> Iterator[tuple[str, Image.Image]]:
        for index, item in enumerate(name_failures(_items(source), failure)):
            place = f"{name}: image {index}"
            picture, label = _pair_of(item, place)
            labels.append(_label(label, place))
            image = _image(picture, place)
            yield place, image if image_size is None else fit(image, image_size)

    return stack(images()), torch.tensor(labels, dtype=torch.int64)


def _pair_of(item: Any, place: str) -> tuple[Any, Any]:
    """Return image and label of an item, which is a pair or a dict."""
    if isinstance(item, Mapping):
        image, label = (column_of(place, item, names) for names in (IMAGE_COLUMNS, LABEL_COLUMNS))
        return item[image], item[label]
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        raise DataError(f"items must be pairs of image and label; got {type(item).__name__} for {place}")
    return item[0], item[1]


def _items(source: Iterable[Any]) -> Iterator[Any]:
    if isinstance(source, DataLoader):
        if isinstance(source.sampler, RandomSampler):
            raise DataError(
                "a loader must give its images in the same order every time, so that a run can go on with them; got "
                "one that shuffles: give it shuffle=False, training shuffles the images itself"
            )
        return (pair for batch in source for pair in _pairs(batch))
    if isinstance(source, Dataset) and isinstance(source, Sized):
        # A Dataset with only __getitem__ and __len__ may not raise IndexError at its end.
        return (source[index] for index in range(len(source)))
    return iter(source)


def name_failures(items: Iterator[Any], message: Callable[[int, str], str]) -> Iterator[Any]:
    """Yield the items; errors of the user's own code become a DataError.

    `message` makes its text from the item's number, from 0, and the error in a line.
    """
    for number in count_up():
        try:
            item = next(items)
        except StopIteration:
            return
        except BCNetError:
            raise
        except Exception as error:
            raise DataError(message(number, last_line(error))) from error
        yield item


def _pairs(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        batch = _pair_of(batch, "a batch")
    if not isinstance(batch, (tuple, list)) or len(batch) != 2 or len(batch[0]) != len(batch[1]):
        raise DataError(
            f"batches must be pairs of images and as many labels; got {type(batch).__name__}: give the loader a "
            "collate function that makes such pairs"
        )
    return zip(*batch, strict=True)


def _label(label: Any, place: str) -> int:
    scalar = isinstance(label, np.generic) or (isinstance(label, torch.Tensor) and label.numel() == 1)
    value = label.item() if scalar else label
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        got = f"{type(value).__name__} of shape {tuple(value.shape)}" if hasattr(value, "shape") else repr(value)
        raise DataError(
            f"labels must be integers, the class numbers from 0; got {got} for {place}: fix it, or, if no target "
            f"is a class number, {_AS_THEY_COME}"
        )
    return value


def _image(image: Any, place: str) -> Image.Image:
    if isinstance(image, Image.Image):
        return eight_bits(place, image)
    if isinstance(image, torch.Tensor) and image.dim() == 3:
        image = _bytes(image.cpu(), place).permute(1, 2, 0).numpy()  # (H, W, C)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim in (2, 3):
        array: Bytes = image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image
        if array.ndim == 2 or array.shape[2] == 3:
            return Image.fromarray(np.ascontiguousarray(array))
    shape = f" of shape {tuple(image.shape)} and {image.dtype}" if isinstance(image, (torch.Tensor, np.ndarray)) else ""
    raise DataError(
        "images must be PIL images, byte arrays (H, W) or (H, W, C), or tensors (C, H, W), with 1 or 3 channels; got "
        f"{type(image).__name__}{shape} for {place}"
    )


def _bytes(image: torch.Tensor, place: str) -> torch.Tensor:
    if image.dtype == torch.uint8:
        return image
    if not image.is_floating_point():
        raise DataError(f"tensors of images must be uint8 or floats in [0, 1]; got {image.dtype} for {place}")
    low = float(image.min())
    high = float(image.max())
    if not 0 <= low <= high <= 1:
        raise DataError(
            f"floats of images must be in [0, 1]; got {low:.3g} to {high:.3g} for {place}: leave the normalisation "
            f"out, it is done later from the data's own statistics, or {_AS_THEY_COME}"
        )
    return (image * 255).round().to(torch.uint8)
