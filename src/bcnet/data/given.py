"""Data given in Python: data sets, loaders, arrays or tables, with or without a test part."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from bcnet.data.images import DataSet
from bcnet.data.items import data_set_of, hold_out_items, is_pair_of_arrays, take_items, take_loaders
from bcnet.data.loaders import Loaders, loaders_of
from bcnet.data.splits import number_classes, usual_parts
from bcnet.data.tables import is_table, load_tables
from bcnet.errors import DataError

_MOST_PARTS = 3
_FORMS = (
    "data must be a name, a bcnet.DataSet, a datasets.DatasetDict, or a torch data set, a loader or a pair of arrays "
    "(images, labels): one, of which a fifth is held out for the test, or (train, test) or (train, validation, test)"
)


def given_data(data: Any, image_size: int | None) -> DataSet | Loaders:
    """Return the given data; without a test part, a fixed fifth is held out for it.

    Raises:
        DataError: data of another form, or an `image_size` for images that are not loaded here.
    """
    if isinstance(data, Mapping) and data and all(map(is_table, data.values())):
        return load_tables(data, image_size)
    if isinstance(data, (DataSet, Loaders)):
        found = data
    else:
        parts = _parts_of(data)
        if all(map(is_table, parts.values())):
            return load_tables(parts, image_size)
        names, parts = _number_words(parts)
        found = _join_parts([*parts.values()], image_size, names)
    if image_size is not None and found.image_shape[1:] != (image_size, image_size):
        raise DataError(
            f"image_size is for raw images, which are resized here; got {image_size} with inputs of "
            f"{found.image_shape[1:]} pixels: resize them before, or give it to DataSet.from_datasets"
        )
    return found


def _parts_of(data: Any) -> dict[str, Any]:
    """Return the given parts among "train", "validation" and "test"."""
    if isinstance(data, Mapping):
        parts = {name: part for name, (_, part) in usual_parts(data, "the mapping").items()}
        if "training" not in parts:
            raise DataError(
                f"data in a mapping must have a part 'train'; got {', '.join(map(repr, data)) or 'nothing'}"
            )
        return {"train": parts.pop("training"), **parts}
    if isinstance(data, os.PathLike):
        raise DataError(
            f"files must be given as text that begins with their kind, such as 'imagefolder:{data}', 'npz:{data}' or "
            f"'parquet:{data}'; got {type(data).__name__}: {data}"
        )
    if isinstance(data, (Dataset, DataLoader)) or is_table(data) or is_pair_of_arrays(data):
        return {"train": data}
    if isinstance(data, list) and len(data) > _MOST_PARTS:  # a list of items
        return {"train": data}
    if not isinstance(data, (tuple, list)):
        raise DataError(f"{_FORMS}; got {type(data).__name__}")
    if len(data) not in (2, _MOST_PARTS) or not all(isinstance(part, (Dataset, DataLoader, Iterable)) for part in data):
        raise DataError(f"{_FORMS}; got ({', '.join(type(part).__name__ for part in data)})")
    return dict(zip(("train", "test") if len(data) == 2 else ("train", "validation", "test"), data, strict=True))


def _number_words(parts: dict[str, Any]) -> tuple[Sequence[str] | None, dict[str, Any]]:
    """Return the parts with words as labels of arrays replaced by class numbers, and the words in their order."""
    words = {
        "training" if name == "train" else name: np.asarray(part[1]).tolist()
        for name, part in parts.items()
        if is_pair_of_arrays(part) and not isinstance(part[1], torch.Tensor) and np.asarray(part[1]).dtype.kind in "UO"
    }
    if len(words) < len(parts):
        return None, parts
    names, numbers = number_classes(words, "the given data")
    numbered = zip(parts, parts.values(), numbers.values(), strict=True)
    return names, {name: (part[0], labels) for name, part, labels in numbered}


def _join_parts(
    parts: Sequence[Any], image_size: int | None, class_names: Sequence[str] | None = None
) -> DataSet | Loaders:
    if len(parts) == 1:
        train, test, note = hold_out_items(parts[0])
        found = _join_parts((train, test), image_size, class_names)
        return dataclasses.replace(found, notes=(note, *found.notes))
    if any(isinstance(part, DataLoader) for part in parts):
        if len(parts) == 2 and isinstance(parts[0], DataLoader):
            return take_loaders(parts[0], parts[1])
        return loaders_of(parts)
    parts = [data_set_of(part) for part in parts]
    names = class_names or _class_names(parts[0])
    items = take_items(parts, names)
    if items is not None:
        return items
    validation = parts[1] if len(parts) == _MOST_PARTS else None
    return DataSet.from_datasets(parts[0], parts[-1], validation=validation, class_names=names, image_size=image_size)


def _class_names(train: Any) -> Sequence[str] | None:
    """Return the class names of a data set, or of the one that it is a subset of."""
    classes = getattr(train, "classes", None)
    if isinstance(classes, (list, tuple)) and all(isinstance(name, str) for name in classes):
        return classes
    return _class_names(train.dataset) if isinstance(train, Subset) else None
