"""Data sets whose items are used unchanged: pairs of inputs and targets of any kind."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset, TensorDataset, default_collate

from bcnet.data.conversion import LABEL_COLUMNS, are_images, channel_axis, split_dict
from bcnet.data.loaders import LoaderBatches, Loaders
from bcnet.data.splits import strata, stratified_mask
from bcnet.errors import DataError
from bcnet.pytree import slice_batch, tensors

_HELD_OUT = 0.2  # share of the training items held out without validation data, as for images
_ARRAYS = (Tensor, np.ndarray)
_READ_BATCH = 64  # batch size for scored or tested items; a run makes its own batches
_TRANSFORMS = ("transform", "transforms")  # attributes in which torchvision's data sets store transforms


@dataclass(frozen=True, eq=False)
class Items(Loaders):
    """Loaders made of data sets, with the recipe's batch size or the settings of the user's loader.

    `whole` holds all training items, for final networks; `train` those that are not held out. `own` is the user's
    loader, whose batch size, `collate_fn` and other settings are kept.

    """

    whole: Any = None
    own: DataLoader[Any] | None = None

    @property
    def batch_size(self) -> int | None:
        """Batch size of the user's loader; None for the recipe's."""
        return None if self.own is None else self.own.batch_size

    @property
    def trained_on(self) -> int | None:
        """Number of training items; None with the user's loader."""
        return None if self.own is not None else len(self.whole.dataset)

    @property
    def holds_out(self) -> bool:
        """Return whether a part of the training items is held out to score candidates."""
        return self.whole is not self.train

    @property
    def in_memory(self) -> bool:
        """Return whether the training items are tensors in memory."""
        data = self.whole.dataset
        return self.own is None and (isinstance(data, TensorDataset) or _are_tensors(data))

    def training_batches(self, batch_size: int) -> LoaderBatches:
        """Return batches of the items that are not held out."""
        return self._batches(self.train.dataset, batch_size)

    def all_training_batches(self, batch_size: int) -> LoaderBatches:
        """Return batches of all training items."""
        return self._batches(self.whole.dataset, batch_size)

    def _batches(self, data: Any, batch_size: int) -> LoaderBatches:
        return LoaderBatches(_training_loader(data, batch_size, self.own), self.accepted, self.channels_last)


def take_items(parts: Sequence[Any], class_names: Sequence[str] | None = None) -> Items | None:
    """Return data sets as they are, `(train, test)` or `(train, validation, test)`; None if they hold raw images.

    A part is a torch `Dataset` or a list of pairs of input and target (or of dicts with a usual name for the target),
    as returned by `data_set_of`. 64-bit floats become 32-bit. Without a validation part a fixed fifth of the training
    items is held out, balanced by class if class numbers are visible. Held-out images of a data set with a `transform`
    are prepared like the test's.

    Raises:
        DataError: a part without length or items, items of another form, or strings as targets.
    """
    if are_images(parts[0]):
        return None
    names = ("training", "test") if len(parts) == 2 else ("training", "validation", "test")
    for data, which in zip(parts, names, strict=True):
        _check_items(data, which)
    whole = parts[0]
    labels = labels_behind(whole)
    train, validation, notes = (whole, parts[1], ()) if len(parts) == 3 else _hold_out(whole, parts[-1], labels)
    of_all = _training_loader(whole, _READ_BATCH)
    return Items(
        of_all if train is whole else _training_loader(train, _READ_BATCH),
        DataLoader(validation, _READ_BATCH, collate_fn=_collate),
        DataLoader(parts[-1], _READ_BATCH, collate_fn=_collate),
        name="datasets",
        class_names=_names_of(labels) if class_names is None else tuple(class_names),
        notes=("Items are used unchanged, without normalisation and augmentation.", *notes),
        whole=of_all,
    )


def is_pair_of_arrays(part: Any) -> bool:
    """Return whether `part` is inputs and targets as two arrays.

    Inputs may be a list of arrays, or several arrays in a tuple or dict, and targets a list of numbers or of words.
    """
    if not isinstance(part, (tuple, list)) or len(part) != 2:
        return False
    inputs, targets = part
    if isinstance(inputs, (list, tuple, dict)):
        several = inputs.values() if isinstance(inputs, dict) else inputs
        arrays = len(inputs) > 0 and all(isinstance(one, _ARRAYS) for one in several)
    else:
        arrays = isinstance(inputs, _ARRAYS)
    plain = isinstance(targets, list) and all(_is_scalar(target) for target in targets)
    return arrays and (isinstance(targets, _ARRAYS) or plain)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float, str, np.generic)) or (isinstance(value, Tensor) and value.ndim == 0)


def hold_out_items(data: Any) -> tuple[Any, Any, str]:
    """Hold out a fixed fifth of the items; return training data, test data, and a note.

    The fifth is balanced by class if class numbers are visible. A loader is split into two.

    Raises:
        DataError: data without length or indexing, items of another form, or a loader with its own sampler.
    """
    own = data if isinstance(data, DataLoader) else None
    items: Any = data_set_of(data) if own is None else own.dataset
    if own is not None and not _draws_every_item_once(own):
        raise DataError(
            "of one loader a fifth of the items is held out for the test, which needs no sampler of its own; got "
            f"{type(own.sampler).__name__}: give two, (train, test), or three, (train, validation, test)"
        )
    _check_items(items, "given", with_pictures=own is None and are_images(items))
    mask = _held_out(labels_behind(items), len(items))
    kept, held = (_select_items(items, chosen.nonzero().flatten().tolist()) for chosen in (~mask, mask))
    share = f"{len(held):,} of {len(mask):,}"
    note = f"There are no test data: a fixed fifth of the items is held out for the test, {share}."
    if own is None:
        return kept, held, note
    test = DataLoader(held, own.batch_size, collate_fn=own.collate_fn, num_workers=own.num_workers)
    return _training_loader(kept, _READ_BATCH, own), test, note


def _select_items(data: Any, chosen: list[int]) -> Any:
    """Return the chosen items of a data set; tensors in memory stay tensors."""
    if isinstance(data, TensorDataset):
        return TensorDataset(*(tensor[chosen] for tensor in data.tensors))
    return [data[index] for index in chosen] if isinstance(data, list) else Subset(data, chosen)


def take_loaders(train: DataLoader[Any], test: Any) -> Items:
    """Return two loaders with a fixed fifth of the training items held out, in batches like those of `train`.

    Raises:
        DataError: a training loader whose items cannot be selected: a data set without indexing, or a custom sampler.
    """
    data = train.dataset
    if not hasattr(data, "__getitem__") or not _draws_every_item_once(train):
        raise DataError(
            "of two loaders, (train, test), a fifth of the first one's items is held out, which needs a data set with "
            f"items by number and no sampler of its own; got {type(data).__name__} and {type(train.sampler).__name__}: "
            "give three, (train, validation, test), of which validation scores widths"
        )
    labels = labels_behind(data)
    kept, held, notes = _hold_out(data, getattr(test, "dataset", None), labels)
    return Items(
        _training_loader(kept, _READ_BATCH, train),
        DataLoader(held, _READ_BATCH, collate_fn=train.collate_fn),
        test,
        name="loaders",
        class_names=_names_of(labels),
        notes=notes,
        whole=train,
        own=train,
    )


def _names_of(labels: Tensor | None) -> tuple[str, ...]:
    """Return class numbers as names; () without labels, or if there are more classes than items."""
    count = 0 if labels is None else int(labels.max()) + 1
    return tuple(map(str, range(count))) if labels is not None and count <= len(labels) else ()


def _draws_every_item_once(loader: DataLoader[Any]) -> bool:
    sampler: Any = loader.sampler
    data: Any = loader.dataset
    if loader.batch_size is None or type(sampler) not in (RandomSampler, SequentialSampler):
        return False
    return not getattr(sampler, "replacement", False) and len(sampler) == len(data)


def labels_behind(data: Any) -> Tensor | None:
    """Return the class numbers `(n,)` of a data set without reading its items; None if they are not visible."""
    if isinstance(data, Subset):
        labels = labels_behind(data.dataset)
        return None if labels is None else labels[torch.as_tensor(list(data.indices))]
    if isinstance(data, TensorDataset):
        found: Any = data.tensors[-1]
    elif isinstance(data, (list, tuple)):
        found = [item[1] for item in data if isinstance(item, (list, tuple)) and len(item) == 2]
        if found and isinstance(found[0], np.ndarray):
            return None  # torch warns about lists of arrays
    else:
        found = next((getattr(data, name) for name in ("targets", "labels") if hasattr(data, name)), None)
    try:
        labels = torch.as_tensor(found)
    except (TypeError, ValueError, RuntimeError):
        return None
    numbers = labels.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    if not numbers or labels.shape != (len(data),) or int(labels.min()) < 0:
        return None
    return labels.long()


def data_set_of(part: Any) -> Any:
    """Return a data set of the given part; a pair of arrays becomes a data set of pairs."""
    if is_pair_of_arrays(part):
        inputs, targets = part
        several = isinstance(inputs, (tuple, dict))
        lengths = [*map(len, tensors(inputs) if several else (inputs,)), len(targets)]
        if len(set(lengths)) > 1:
            raise DataError(
                f"arrays of inputs and targets must be equally long; got {' and '.join(map(str, lengths))}: leave out "
                "what has no partner"
            )
        if several:
            inputs = tree_map_only(np.ndarray, torch.as_tensor, inputs)
            rows = (slice_batch(inputs, number) for number in range(len(targets)))
            return list(zip(rows, targets, strict=True))
        if isinstance(inputs, list):
            if any(one.shape != inputs[0].shape for one in inputs):
                return list(zip(inputs, targets, strict=True))
            inputs = torch.stack([torch.as_tensor(one) for one in inputs])
        inputs = _in_usual_order(inputs)
        if isinstance(inputs, Tensor) and not isinstance(targets, list):
            return TensorDataset(inputs, torch.as_tensor(targets))
        return list(zip(inputs, targets, strict=True))
    return part


def _in_usual_order(inputs: Any) -> Any:
    """Return bytes in image order: a tensor if channels come first, an array if they come last or are absent."""
    if inputs.dtype not in (torch.uint8, np.uint8) or inputs.ndim not in (3, 4):
        return inputs
    return torch.as_tensor(inputs) if channel_axis(inputs.shape) == 1 else np.asarray(inputs)


def _check_items(data: Any, which: str, *, with_pictures: bool = False) -> None:
    if not isinstance(data, Sized) or not hasattr(data, "__getitem__"):
        raise DataError(
            f"the {which} data must be a data set with a length and items by number; got {type(data).__name__}: "
            "list(data) makes one of what is only iterated over"
        )
    if len(data) == 0:
        raise DataError(f"the {which} data must have at least one item; got none")
    item = data[0]
    rule = f"items of the {which} data must be pairs of input and target, or dicts with the target under 'label'"
    if isinstance(item, Mapping):
        inputs, targets = split_dict(item)
        if len(targets) != 1:
            raise DataError(f"{rule} (or {', '.join(LABEL_COLUMNS[1:])}); got {', '.join(map(str, item))}")
    elif isinstance(item, (tuple, list)) and len(item) == 2:
        inputs, targets = item[0], [item[1]]
    else:
        got = f"{type(item).__name__} of {len(item)}" if isinstance(item, (tuple, list)) else type(item).__name__
        raise DataError(
            f"{rule}; got {got} for item 0: put several inputs into a tuple, ((a, b), target), and leave "
            "other parts out"
        )
    if isinstance(targets[0], (str, bytes)):
        raise DataError(
            f"targets must be numbers or tensors; got {targets[0]!r} for item 0 of the {which} data: number the "
            "classes from 0"
        )
    if isinstance(inputs, Image.Image) and not with_pictures:
        raise DataError(
            f"inputs beside such targets must be tensors; got {type(inputs).__name__} for item 0 of the {which} data: "
            "ToTensor makes floats of images"
        )


def _hold_out(train: Any, test: Any, labels: Tensor | None) -> tuple[Any, Any, tuple[str, ...]]:
    """Split the training items; return those for training, those held out, and a note on how they were chosen."""
    mask = _held_out(labels, len(train))
    kept, held = ((~mask).nonzero().flatten().tolist(), mask.nonzero().flatten().tolist())
    scoring, as_test = _prepared_as(train, test)
    note = f"A fixed fifth of the training items, {len(held):,}, scores candidates"
    note += ", prepared by the transform of the test items." if as_test else "."
    return Subset(train, kept), Subset(scoring, held), (note,)


def _held_out(labels: Tensor | None, count: int) -> Tensor:
    """Return the mask of held-out items, balanced by class if there are class numbers."""
    return stratified_mask(strata(labels, count), _HELD_OUT, seed=0)


def _prepared_as(train: Any, test: Any) -> tuple[Any, bool]:
    """Return the training data with the transforms of the test data, and whether that changed them."""
    if isinstance(train, Subset) and isinstance(test, Subset):
        inner, changed = _prepared_as(train.dataset, test.dataset)
        return (Subset(inner, train.indices), True) if changed else (train, False)
    names = [name for name in _TRANSFORMS if hasattr(train, name) and hasattr(test, name)]
    if type(train) is not type(test) or all(getattr(train, name) is getattr(test, name) for name in names):
        return train, False
    changed = copy.copy(train)
    for name in names:
        setattr(changed, name, getattr(test, name))
    return changed, True


def _training_loader(data: Any, batch_size: int, own: DataLoader[Any] | None = None) -> DataLoader[Any]:
    """Return a shuffling loader, with the settings of `own` if given.

    A last batch of one item is dropped for batch norm.
    """
    size = batch_size if own is None or own.batch_size is None else own.batch_size
    alone = len(data) > size and len(data) % size == 1
    generator = torch.Generator()
    if own is None:
        return DataLoader(data, size, shuffle=True, drop_last=alone, collate_fn=_collate, generator=generator)
    return DataLoader(
        data,
        size,
        shuffle=isinstance(own.sampler, RandomSampler),
        drop_last=own.drop_last or alone,
        collate_fn=own.collate_fn,
        num_workers=own.num_workers,
        worker_init_fn=own.worker_init_fn,
        pin_memory=own.pin_memory,
        generator=generator,
    )


def _collate(items: list[Any]) -> Any:
    try:
        batch = default_collate(items)
    except RuntimeError:
        shapes = {tuple(part.shape) for item in items for part in _parts(item) if hasattr(part, "shape")}
        raise DataError(
            f"items must have inputs of one shape, and targets of one; got {' and '.join(map(str, sorted(shapes)))}: "
            "crop, resize or pad them"
        ) from None
    return tree_map_only(Tensor, lambda t: t.float() if t.dtype in (torch.float64, torch.float16) else t, batch)


def _parts(item: Any) -> list[Any]:
    return list(item.values()) if isinstance(item, Mapping) else list(item)


def _are_tensors(data: Any) -> TypeGuard[list[Any]]:
    """Return whether the data are a list of pairs of tensors, arrays and numbers."""
    kinds = (Tensor, np.ndarray, np.generic, int, float)
    return isinstance(data, list) and all(isinstance(part, kinds) for item in data for part in _parts(item))
