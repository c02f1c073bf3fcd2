"""Data of an imitation: inputs alone, and the original's outputs as their targets."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from bcnet.data import Batch, Loaders, loaders_of
from bcnet.data.conversion import split_dict
from bcnet.data.transfer import move
from bcnet.errors import DataError
from bcnet.nests import Nest, call_network, count, join_batches
from bcnet.run.parts import Parts
from bcnet.tasks.imitation import LABELS, names_of, output_tensors
from bcnet.train import EpochBatches

_BATCH = 64
_HELD_OUT = 10  # one part in so many is for scoring candidates, another for the test
_FEWEST = 40  # inputs: four to score candidates by and four to test


class Teacher:
    """The original in eval mode, which gives the targets of inputs."""

    def __init__(self, original: nn.Module) -> None:
        self._network = copy.deepcopy(original).eval().requires_grad_(False)
        self._device = next(self._network.parameters()).device

    @torch.no_grad()
    def __call__(self, x: Nest, labels: Any = None) -> dict[str, Tensor]:
        """The outputs of the original for a batch, by name, with the labels where these are class numbers.

        Raises:
            DataError: an output is NaN or infinite.
        """
        leaves = output_tensors(call_network(self._network, move(x, self._device)))
        if not all(bool(leaf.isfinite().all()) for leaf in leaves):
            raise DataError(
                "the original gives NaN or infinity for some of the inputs, which nothing can imitate: leave these "
                "inputs out, or prepare them as in its training"
            )
        found = names_of(leaves)
        if _are_classes(labels, leaves[0]):
            found[LABELS] = labels.to(self._device)
        return found


@dataclass(frozen=True)
class ImitatedBatches:
    """Training batches with the original's outputs for these very inputs, augmented or not, as targets."""

    batches: EpochBatches
    teacher: Teacher

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass over the batches, in the order that the generator draws."""
        return ((x, self.teacher(x)) for x, _ in self.batches.epoch(generator))


def imitated_parts(parts: Parts, original: nn.Module) -> Parts:
    """Return the parts of the data with the original's outputs as targets; labels stay beside those of the test."""
    teacher = Teacher(original)
    validation, fresh = ([(x, teacher(x)) for x, _ in part] for part in (parts.validation, parts.fresh))
    return Parts(
        ImitatedBatches(parts.training, teacher),
        ImitatedBatches(parts.all_training, teacher),
        validation,
        fresh,
        lambda: ((x, teacher(x, labels)) for x, labels in parts.test()),
    )


def input_loaders(data: Any) -> Loaders | None:
    """Return loaders of inputs alone: a tensor, an array, one loader, or three; None where `data` are others.

    Inputs that come as one are cut, in an order drawn from a fixed seed, into a tenth to score candidates by, a tenth
    to test, and the rest to train on, in batches of 64 or fewer. Three loaders stay as they are.

    Raises:
        DataError: fewer than 40 inputs in one, a loader that shuffles, or loaders that are not three.
    """
    if isinstance(data, (tuple, list)) and any(isinstance(part, DataLoader) for part in data):
        data = loaders_of(data)
    if isinstance(data, Loaders):
        train, validation, test = map(_WithPlaceholders, (data.train, data.validation, data.test))
        return replace(data, train=train, validation=validation, test=test)
    if isinstance(data, DataLoader):
        if isinstance(data.sampler, RandomSampler):
            raise DataError("a loader of inputs gives them in one order; got one that shuffles: give shuffle=False")
        batches = [_inputs_of(batch) for batch in data]
        return _cut(join_batches(batches)) if batches else None
    if isinstance(data, np.ndarray):
        data = torch.from_numpy(np.ascontiguousarray(data))
    return _cut(data) if isinstance(data, Tensor) else None


def _cut(inputs: Nest) -> Loaders:
    total = count(inputs)
    if total < _FEWEST:
        raise DataError(f"an imitation needs at least {_FEWEST} inputs; got {total}: give more, as those met in use")
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0))
    held = total // _HELD_OUT
    parts = (order[2 * held :], order[:held], order[held : 2 * held])
    size = min(_BATCH, len(parts[0]) // 4)
    if not isinstance(inputs, Tensor):
        raise DataError("inputs of several tensors come as three loaders, (train, validation, test)")
    train, validation, test = (TensorDataset(inputs[part], torch.zeros(len(part))) for part in parts)
    return Loaders(
        DataLoader(train, size, shuffle=True, drop_last=len(parts[0]) % size == 1, generator=torch.Generator()),
        DataLoader(validation, size),
        DataLoader(test, size),
        name="inputs",
    )


class _WithPlaceholders:
    """A loader of inputs alone, as one of pairs: the targets are zeros, which nothing reads."""

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

    def __getattr__(self, name: str) -> Any:  # batch size, sampler, data set: as of the loader
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


def _is_pair(batch: Any) -> bool:
    """Return whether a batch has targets: a dict with some, or a pair whose second part is no tensor of inputs."""
    if isinstance(batch, Mapping):
        return bool(split_dict(batch)[1])
    return isinstance(batch, (tuple, list)) and len(batch) == 2 and not _is_input(batch[1])


def _is_input(part: Any) -> bool:
    return isinstance(part, Tensor) and part.is_floating_point() and part.ndim > 1


def _inputs_of(batch: Any) -> Nest:
    """The inputs of a batch: all of it, or what is beside its targets."""
    if _is_pair(batch):
        batch = split_dict(batch)[0] if isinstance(batch, Mapping) else batch[0]
    if isinstance(batch, (tuple, list)):
        batch = batch[0] if len(batch) == 1 else tuple(batch)
    found: Nest = batch
    return found


def _are_classes(labels: Any, output: Tensor) -> bool:
    """Return whether labels are class numbers `(batch,)` for which the output has an entry each."""
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.ndim != 1 or output.ndim != 2:
        return False
    return len(labels) == 0 or bool((labels >= 0).all() and (labels < output.shape[1]).all())


def read_inputs(path: str) -> np.ndarray[Any, Any]:
    """Return the array of a `.npy` file, or the only array of an `.npz` file; pickles are never loaded.

    Raises:
        DataError: no such file, another format, or several arrays.
    """
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"inputs:PATH is a .npy or .npz file of one array (inputs, ...); {path!r} is not: {error}"
        ) from None
    if isinstance(found, np.ndarray):
        return found
    with found:
        names = list(found.files)
        if len(names) != 1:
            raise DataError(f"{path} has one array; got {len(names)}, {', '.join(names)}: save the inputs alone")
        array: np.ndarray[Any, Any] = found[names[0]]
    return array
