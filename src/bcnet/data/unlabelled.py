"""Inputs without labels: tensors, arrays, data sets, loaders, an array file, or a folder of images or sounds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset

from bcnet.data.conversion import in_words, name_failures, split_dict
from bcnet.data.decoding import decode_all, resizing_to
from bcnet.data.folders import files_of_images, is_much
from bcnet.data.images import IMAGENET, Normaliser
from bcnet.data.items import is_pair_of_arrays
from bcnet.data.loaders import Loaders, loaders_of
from bcnet.data.sounds import Framing, files_of_sounds, read_frames
from bcnet.data.splits import TRAINING_NAMES
from bcnet.errors import DataError
from bcnet.pytree import Pytree, concat_batches, count, map_tensors, slice_batch

_BATCH = 64
_HELD_OUT = 10  # one part of this many scores candidates, another is the test
_BY_KEYWORD = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
_NUMBERS = "biufc"  # kinds of NumPy dtypes
_MOST_READ = 1024  # items of a data set, for the statistics of a narrowed network
_FEWEST = 40  # inputs: four to score candidates and four to test
PIXELS = {
    "imagenet": IMAGENET,
    "0..1": ((0.0,) * 3, (1.0,) * 3),
    "-1..1": ((0.5,) * 3, (0.5,) * 3),
    "0..255": ((0.0,) * 3, (1 / 255,) * 3),
}
"""Conversions of an image's bytes to floats: mean and standard deviation of three channels in [0, 1]."""


class Inputs(Dataset[tuple[Pytree, Tensor]]):
    """Fixed inputs, each with its index as target, which looks up the original's outputs."""

    def __init__(self, inputs: Pytree) -> None:
        self._inputs = inputs
        # float64, since integers would be taken for labels
        self._targets = torch.arange(count(inputs), dtype=torch.float64)

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, index: int) -> tuple[Pytree, Tensor]:
        return slice_batch(self._inputs, index), self._targets[index]

    def loader(self, size: int, **options: Any) -> DataLoader[Any]:
        """Return a loader of batches of `size` inputs with their targets; `options` are torch's."""
        return DataLoader(self, size, collate_fn=_collate, **options)


def _collate(items: Sequence[tuple[Pytree, Tensor]]) -> tuple[Pytree, Tensor]:
    """Return a batch of inputs as tuple or dict, where torch's own function makes a list of a tuple."""
    inputs, targets = zip(*items, strict=True)
    return concat_batches([map_tensors(lambda tensor: tensor[None], one) for one in inputs]), torch.stack(targets)


class Pictures(Inputs):
    """Images as inputs: bytes `(n, C, H, W)`, converted to floats one by one."""

    def __init__(self, pixels: Tensor, normaliser: Normaliser) -> None:
        super().__init__(pixels)
        self._normaliser = normaliser

    def __getitem__(self, index: int) -> tuple[Pytree, Tensor]:
        pixels, target = super().__getitem__(index)
        assert isinstance(pixels, Tensor), "images are one tensor"
        return self._normaliser(pixels[None])[0], target


def load_inputs(path: str, image_size: int | None, pixels: str, framing: Framing | None = None) -> Loaders:
    """Return loaders of the inputs in a `.npy` or `.npz` file, or of the images or sounds in a folder, at any depth.

    Images are resized to `image_size`, if given, and converted as `pixels` says (`PIXELS`). With a `framing`, the
    folder's WAV files are read and cut into frames.

    Raises:
        DataError: no such file or folder, other contents, or too few inputs.
    """
    place = Path(path).expanduser()
    if not place.is_dir():
        return _cut_batches(_tensor_of(read_inputs(str(place))))
    if framing is not None:
        return _load_sounds(place, framing)
    files = files_of_images(place)
    if not files and (sounds := files_of_sounds(place)):
        raise DataError(
            f"a folder of sounds is cut into frames as long as the network takes; got {len(sounds):,} WAV files in "
            f"{path!r}: say how long, and at which rate (imitation:samples=1024,rate=16000)"
        )
    if is_much(len(files), image_size):
        raise DataError(
            f"a folder of inputs takes at most two gigabytes as pixels; got {len(files):,} images in {path!r}: give a "
            "part of them, or a loader of your own"
        )
    _check_enough(len(files), f" images in {path!r}")
    listed = [(str(file), file) for file in files]
    read = decode_all(listed, image_size)
    if pixels == "imagenet":
        read = read.expand(-1, 3, -1, -1)
    channels = read.shape[1]
    mean, std = PIXELS[pixels]
    normaliser = Normaliser(mean[:channels], std[:channels])
    preparation = "" if image_size is None else str(resizing_to(image_size))
    scaled = "scaled by ImageNet's mean and standard deviation" if pixels == "imagenet" else f"scaled to {pixels}"
    colours = "grey" if channels == 1 else "RGB"
    how = f"{preparation or 'as they are'}, {colours}, {scaled} (imitation:pixels={pixels})"
    loaders = _cut_batches(read, lambda part: Pictures(part, normaliser))
    return replace(
        loaders,
        notes=(f"Inputs: {len(files):,} images in {path}, {how}.",),
        normaliser=normaliser,
        preparation=preparation,
    )


def _load_sounds(folder: Path, framing: Framing) -> Loaders:
    files = files_of_sounds(folder)
    _check_enough(len(files), f" WAV files in {str(folder)!r}", least=1)
    recordings = read_frames(files, framing)
    count = sum(map(len, recordings))
    _check_enough(count, f" frames of {framing.shape[-1]:,} samples in {len(files):,} WAV files of {str(folder)!r}")
    short = sum(len(frames) == 0 for frames in recordings)
    left_out = f"; {short:,} are shorter than a frame and ignored" if short else ""
    # Whole recordings follow each other, so at most two of them are in two parts.
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0)).tolist()
    inputs = torch.from_numpy(np.concatenate([recordings[number] for number in order]))
    note = f"Inputs: {count:,} frames of {len(files):,} WAV files in {folder}, {framing}{left_out}."
    return replace(_cut_batches(inputs, shuffled=False), notes=(note,), preparation=str(framing))


def input_loaders(data: Any) -> Loaders | None:
    """Return loaders of inputs without labels: tensors, arrays, a data set, one loader or three; None for other data.

    Several tensors are in a dict by name. Inputs given as a whole are split, in an order drawn from a fixed seed, into
    a tenth to score candidates, a tenth to test, and the rest to train, in batches of 64 or fewer. Three loaders are
    used unchanged.

    Raises:
        DataError: fewer than 40 inputs as a whole, images that are no tensors, a loader that shuffles, or another
            number of loaders.
    """
    if isinstance(data, (tuple, list)) and any(isinstance(part, DataLoader) for part in data):
        data = loaders_of(data)
    if isinstance(data, Loaders):
        train, validation, test = map(_WithPlaceholders, (data.train, data.validation, data.test))
        return replace(data, train=train, validation=validation, test=test)
    if isinstance(data, DataLoader):
        if isinstance(data.sampler, RandomSampler):
            raise DataError("a loader of inputs must give them in one order; got one that shuffles: give shuffle=False")
        batches = [_inputs_of(batch) for batch in data]
        return _cut_batches(concat_batches(batches)) if batches else None
    if _are_named_inputs(data):
        return _cut_batches({name: _as_tensor(part) for name, part in data.items()})
    if _holds_inputs(data):
        items = [_inputs_of(data[number]) for number in range(len(data))]
        return _cut_batches(concat_batches([_rows_of_one(item) for item in items]))
    return _cut_batches(_as_tensor(data)) if isinstance(data, np.ndarray | Tensor) else None


def input_batches(data: Any, network: nn.Module) -> Iterator[Pytree]:
    """Iterate over batches of network inputs: one tensor or array, a dict of them, or a loader, a data set or a list.

    Of a pair, the second part is left out unless the network takes two inputs. Of a data set, at most 1,024 items are
    read, evenly spaced.

    Raises:
        DataError: other data, an item that cannot be read, or a batch that is no tensor or not finite.
    """
    rule = "inputs must be a tensor (batch, ...), or a loader, data set or list of such batches"
    if isinstance(data, (Tensor, np.ndarray, Mapping)):
        data = [data]
    elif isinstance(data, Dataset) and isinstance(data, Sized):
        data = DataLoader(Subset(data, range(0, len(data), -(-len(data) // _MOST_READ) or 1)), _BATCH)
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise DataError(f"{rule}; got {data!r}")
    failure = "batch {} (from 0) cannot be read: {}: fix that item"
    for number, batch in enumerate(name_failures(iter(data), failure.format)):
        inputs = tree_map_only(np.ndarray, _tensor_of, _without_targets(batch, network))
        leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
        if not leaves:
            got = type(next(iter(tree_leaves(inputs)), inputs)).__name__
            raise DataError(f"{rule}; got {got} in batch {number} (from 0): convert it to a tensor")
        if not all(bool(leaf.isfinite().all()) for leaf in leaves):
            raise DataError(f"inputs must be finite; got NaN or infinity in batch {number} (from 0): leave it out")
        yield inputs


def _without_targets(batch: Any, network: nn.Module) -> Any:
    known = inspect.signature(network.forward).parameters
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        inputs: Any = _inputs_of(batch)
        only = isinstance(inputs, Mapping) and len(inputs) == 1 and not inputs.keys() & known.keys()
        return next(iter(inputs.values())) if only else inputs
    parameters = [p for p in known.values() if p.kind not in _BY_KEYWORD]
    most = math.inf if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(parameters)
    least = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in parameters)
    takes_both = least == 2 or (most >= 2 and _is_input(batch[1]))
    return tuple(batch) if takes_both else batch[0]


def _are_named_inputs(data: Any) -> bool:
    """Return whether `data` are several inputs by name, as tensors or arrays of equal lengths; not parts or labels."""
    if not isinstance(data, Mapping) or split_dict(data)[1] or {str(n).lower() for n in data} & {*TRAINING_NAMES}:
        return False
    parts = [*data.values()]
    return bool(parts) and all(isinstance(p, np.ndarray | Tensor) for p in parts) and len(set(map(len, parts))) == 1


def _holds_inputs(data: Any) -> bool:
    """Return whether `data` is a data set or list of inputs alone: tensors, arrays, or dicts or tuples of them."""
    if not isinstance(data, list | Dataset) or not isinstance(data, Sized) or not hasattr(data, "__getitem__"):
        return False
    if is_pair_of_arrays(data):  # a list of inputs and labels
        return False
    item = data[0] if len(data) else None
    if isinstance(item, Image.Image):
        raise DataError(
            f"inputs must be tensors, prepared as in the network's own training; got {type(item).__name__} for item 0: "
            "convert them, or give their folder, inputs:PATH"
        )
    if isinstance(item, Mapping):
        return not split_dict(item)[1] and all(isinstance(part, np.ndarray | Tensor) for part in item.values())
    if isinstance(item, tuple | list):
        return len(item) == 1 and isinstance(item[0], np.ndarray | Tensor)  # of two, one may be a target
    return isinstance(item, np.ndarray | Tensor) and (item.ndim > 0)


def _rows_of_one(item: Any) -> Pytree:
    if isinstance(item, Mapping):
        return {name: _as_tensor(part)[None] for name, part in item.items()}
    return _as_tensor(item)[None]


def _as_tensor(part: Any) -> Tensor:
    return _tensor_of(part) if isinstance(part, np.ndarray) else part


def _tensor_of(array: np.ndarray[Any, Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))


def _check_enough(total: int, of: str = "", least: int = _FEWEST) -> None:
    if total < least:
        raise DataError(
            f"an imitation needs at least {_FEWEST} inputs; got {total}{of}: give more, as those met in use"
        )


def _cut_batches(inputs: Pytree, make: Callable[[Any], Inputs] = Inputs, *, shuffled: bool = True) -> Loaders:
    total = count(inputs)
    _check_enough(total)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0)) if shuffled else torch.arange(total)
    held = total // _HELD_OUT
    parts = (order[2 * held :], order[:held], order[held : 2 * held])
    size = min(_BATCH, len(parts[0]) // 4)
    train, validation, test = (make(slice_batch(inputs, part)) for part in parts)
    return Loaders(
        train.loader(size, shuffle=True, drop_last=len(parts[0]) % size == 1, generator=torch.Generator()),
        validation.loader(size),
        test.loader(size),
        name="inputs",
    )


class _WithPlaceholders:
    """A loader of inputs, presented as a loader of pairs; the targets are zeros and never read."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            if _is_pair(batch):
                yield batch
            else:
                inputs = _inputs_of(batch)
                yield inputs, torch.zeros(count(inputs))

    def __getattr__(self, name: str) -> Any:  # batch size, sampler and data set of the loader
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


def _is_pair(batch: Any) -> bool:
    """Return whether a batch has targets: a dict with some, or a pair whose second part is not an input tensor."""
    if isinstance(batch, Mapping):
        return bool(split_dict(batch)[1])
    return isinstance(batch, (tuple, list)) and len(batch) == 2 and not _is_input(batch[1])


def _is_input(part: Any) -> bool:
    return isinstance(part, Tensor) and part.is_floating_point() and part.ndim > 1


def _inputs_of(batch: Any) -> Pytree:
    """Return the inputs of a batch: all of it, or all except its targets."""
    if _is_pair(batch):
        batch = split_dict(batch)[0] if isinstance(batch, Mapping) else batch[0]
    if isinstance(batch, (tuple, list)):
        batch = batch[0] if len(batch) == 1 else tuple(batch)
    found: Pytree = batch
    return found


def read_inputs(path: str) -> np.ndarray[Any, Any]:
    """Return the array of a `.npy` file, or the only array of an `.npz` file; pickles are never loaded.

    Raises:
        DataError: no such file, another format, several arrays, or values that are not numbers.
    """
    try:
        with open(path, "rb") as file:  # NumPy does not close a file whose archive it refuses
            found = np.load(file, allow_pickle=False)
            array: np.ndarray[Any, Any] = found if isinstance(found, np.ndarray) else _only_member(path, found)
    except DataError:
        raise
    except Exception as error:  # a corrupt file makes NumPy and zipfile raise errors of any type
        raise DataError(
            "inputs:PATH must be a .npy or .npz file of one array (inputs, ...), or a folder of images; "
            f"{path!r} is neither: {error}"
        ) from None
    if array.dtype.kind not in _NUMBERS or array.ndim == 0:
        raise DataError(
            f"inputs must be an array of numbers (inputs, ...); {path!r} has {array.dtype} of {array.shape}"
        )
    return array


def _only_member(path: str, archive: Any) -> np.ndarray[Any, Any]:
    with archive:
        names = list(archive.files)
        if len(names) != 1:
            raise DataError(f"{path} must have one array; got {len(names)}, {in_words(names)}: save the inputs alone")
        array: np.ndarray[Any, Any] = archive[names[0]]
    return array
