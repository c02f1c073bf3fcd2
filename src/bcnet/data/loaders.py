"""The user's own `DataLoader`s, with their batches and augmentation unchanged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, RandomSampler, Subset, TensorDataset

from bcnet.data.batches import Batch
from bcnet.data.conversion import LABEL_COLUMNS, name_failures, split_dict
from bcnet.data.images import Normaliser
from bcnet.data.splits import strata, stratified_mask
from bcnet.errors import DataError
from bcnet.pytree import Pytree, by_name, channels_last, concat_batches, contiguous, count, slice_batch, tensors

_SEEDS = 2**62
Accepted = Callable[[Any, str], Any]  # (targets, origin) -> targets; raises for invalid ones
Held = tuple[Pytree, Pytree]  # inputs and targets of all validation images


def _any_targets(targets: Any, where: str) -> Any:
    return targets


def _are_labels(targets: Pytree) -> TypeGuard[torch.Tensor]:
    """Return whether targets are class numbers, one per image."""
    return isinstance(targets, torch.Tensor) and targets.ndim == 1 and not targets.is_floating_point()


@dataclass(frozen=True, eq=False)
class Loaders:
    """Three loaders of batches: pairs of inputs, floats `(batch, ...)`, and targets, usually int labels `(batch,)`.

    A batch may be a dict with the targets under a usual name (`label`, `labels`, `target`, ...) and the inputs. A
    network with several inputs gets a tuple of tensors (positional arguments) or a dict (keyword arguments), which may
    include integers such as tokens. The task defines valid targets (`bcnet.Task.check_targets`): masks, images,
    numbers, or several tensors in a tuple or dict.

    `train` provides every epoch of the supernet and the final networks. Its batch size, order, augmentation and
    normalisation are used unchanged; a recipe's batch size is ignored. `validation` scores widths. It is read once,
    kept in memory, and split by class into a part that scores and a part that scores the best again, each in equal
    batches of one shuffled order (`score_batch_size` images or fewer). `test` measures each final network once. Only
    `train` may shuffle and augment.

    Before each epoch and each batch of `train`, the seeds of torch, numpy and `random` are set and later restored, and
    the generators of loader and sampler are seeded. Training is repeatable, and resuming gives the same result, if the
    loader's output depends on these seeds only. Workers that outlive an epoch (`persistent_workers=True`) are seeded
    once, so runs with them are not repeatable.

    Training batches are made channels-last, or contiguous if `channels_last` is False, which a run decides for its
    network. `num_classes` defaults to the number of classes among the validation labels; 0 for other targets.
    `normaliser` and `preparation` describe how the loaders prepare images; with them, networks can be exported with
    their normalisation.

    Example: `bcnet.search(model, bcnet.Loaders(train, validation, test), ...)`, or a tuple of the three.
    """

    train: Any
    validation: Any
    test: Any
    name: str = "loaders"
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    accepted: Accepted = field(default=_any_targets, repr=False)
    channels_last: bool = True
    normaliser: Normaliser | None = None
    preparation: str = ""

    def __post_init__(self) -> None:
        for part in ("train", "validation", "test"):
            _check_loader(part, getattr(self, part))

    @cached_property
    def held_out(self) -> Held:
        """All validation images, floats `(n, ...)`, with labels `(n,)`, or other inputs and targets.

        Raises:
            DataError: batches of another form, or a first batch that differs when read again.
        """
        batches = [
            _check_finite(self._check(batch, "validation"), "validation", number)
            for number, batch in enumerate(_in_order(self.validation, "validation"))
        ]
        if not batches:
            raise DataError("a validation loader must give at least one batch; got none")
        for shapes in ({_shapes(x) for x, _ in batches}, {_shapes(y) for _, y in batches}):
            if len(shapes) > 1:
                raise DataError(
                    "a validation loader must give images of one shape, and targets of one; got "
                    f"{' and '.join(sorted(shapes))}: crop, resize or pad them"
                )
        if not _are_equal(batches[0], self._check(next(_in_order(self.validation, "validation")), "validation")):
            raise DataError(
                "a validation loader must give the same images every time; got others on a second reading: give it "
                "shuffle=False, and a data set that does not augment, or give items for validation beside those that do"
            )
        return concat_batches([x for x, _ in batches]), concat_batches([y for _, y in batches])

    @property
    def labels(self) -> torch.Tensor | None:
        """Class numbers of the validation images; None for other targets."""
        targets = self.held_out[1]
        return targets if _are_labels(targets) else None

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        if self.class_names:
            return len(self.class_names)
        return 0 if self.labels is None else int(self.labels.max()) + 1

    @property
    def names_of_classes(self) -> tuple[str, ...]:
        """Given class names, or the numbers."""
        return self.class_names or tuple(str(number) for number in range(self.num_classes))

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Shape of one image, usually channels, height and width; with several inputs, that of the first."""
        return tuple(tensors(self.held_out[0])[0].shape[1:])

    @property
    def batch_size(self) -> int | None:
        """Batch size of the training loader, if it has one."""
        size = getattr(self.train, "batch_size", None)
        return size if isinstance(size, int) else None

    @property
    def trained_on(self) -> int | None:
        """Number of training images, unless the loader makes the batches."""
        return None

    @property
    def holds_out(self) -> bool:
        """Return whether a part of the training images is held out to score candidates."""
        return False

    @property
    def in_memory(self) -> bool:
        """Return whether the training images are known to be in memory."""
        return False

    def training_batches(self, batch_size: int) -> LoaderBatches:
        """Return the training batches, with the loader's own batch size."""
        return LoaderBatches(self.train, self.accepted, self.channels_last)

    def all_training_batches(self, batch_size: int) -> LoaderBatches:
        """Return the batches of all training data of final networks."""
        return self.training_batches(batch_size)

    def split(self, fresh_share: float, seed: int) -> tuple[Held, Held]:
        """Split the validation images into those that score, and a `fresh_share` that scores the best again."""
        images, labels = self.held_out
        fresh = stratified_mask(strata(labels if _are_labels(labels) else None, count(labels)), fresh_share, seed)
        scoring, again = ((slice_batch(images, part), slice_batch(labels, part)) for part in (~fresh, fresh))
        return scoring, again

    def test_batches(self) -> Iterator[Batch]:
        """Yield the test batches.

        Raises:
            DataError: batches of another form.
        """
        return (
            _check_finite(self._check(batch, "test"), "test", number)
            for number, batch in enumerate(_in_order(self.test, "test"))
        )

    def _check(self, batch: Any, part: str) -> Batch:
        x, y = _check_batch(batch, part, self.accepted)
        return (x if self.channels_last else contiguous(x)), y


@dataclass(frozen=True, eq=False)
class LoaderBatches:
    """Epochs of a training loader, repeatable as far as the loader is."""

    loader: Any
    accepted: Accepted
    channels_last: bool = True

    def __len__(self) -> int:
        return len(self.loader)

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """Iterate over the loader with seeds drawn from `generator`.

        Raises:
            DataError: batches of another form, or fewer than the loader's length.
        """
        seeds = [int(torch.randint(_SEEDS, (), generator=generator)) for _ in range(len(self) + 1)]
        with seed_globally(seeds[0]):
            self._seed_order(seeds[0])
            batches = _read(self.loader, "training")
        for seed in seeds[1:]:
            with seed_globally(seed):
                batch = next(batches, None)
            if batch is None:
                raise DataError(
                    f"a training loader must give as many batches as its length says, {len(self)}; got fewer"
                )
            x, y = _check_batch(batch, "training", self.accepted)
            yield self.laid_out(x), y

    def laid_out(self, x: Pytree) -> Pytree:
        """Return inputs in the memory format of the batches."""
        return channels_last(x) if self.channels_last else contiguous(x)

    def _seed_order(self, seed: int) -> None:
        sampler = getattr(self.loader, "sampler", None)
        for owner in (self.loader, sampler):
            own = getattr(owner, "generator", None)
            if isinstance(own, torch.Generator):
                own.manual_seed(seed)
        set_epoch: Callable[[int], object] | None = getattr(sampler, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(seed % 2**31)


@contextmanager
def seed_globally(seed: int) -> Iterator[None]:
    """Seed the global generators of torch (CPU), numpy and Python in the block, and restore them."""
    python = random.getstate()
    numpy = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def tensors_behind(loader: Any) -> list[torch.Tensor] | None:
    """Return the tensors of a loader's data set, or its targets, without reading it; None if they are not visible."""
    data = getattr(loader, "dataset", loader)
    chosen: list[torch.Tensor] = []
    while isinstance(data, Subset):
        chosen.append(torch.as_tensor(list(data.indices)))
        data = data.dataset
    if isinstance(data, TensorDataset):
        return [*chosen, *data.tensors]
    if isinstance(data, (list, tuple)):
        leaves = tree_leaves(list(data))
        kinds = (torch.Tensor, int, float, np.ndarray, np.generic)
        return [*chosen, *map(torch.as_tensor, leaves)] if all(isinstance(leaf, kinds) for leaf in leaves) else None
    for name in ("targets", "labels"):
        try:
            return [*chosen, torch.as_tensor(getattr(data, name))]
        except (AttributeError, TypeError, ValueError, RuntimeError):
            continue
    return None


def cut(data: Held, batch_size: int, *, seed: int) -> list[Batch]:
    """Return equal batches in one shuffled order; fewer than `batch_size` remaining images are dropped."""
    images, labels = data
    order = torch.randperm(count(labels), generator=torch.Generator().manual_seed(seed))
    whole = order[: len(order) // batch_size * batch_size].view(-1, batch_size)
    return [(slice_batch(images, index), slice_batch(labels, index)) for index in whole]


def loaders_of(parts: Sequence[Any]) -> Loaders:
    """Return the `Loaders` of a tuple.

    Raises:
        DataError: there are not three.
    """
    if len(parts) != 3:
        raise DataError(
            "three loaders are needed, (train, validation, test), of which validation scores widths; got "
            f"{len(parts)}: hold some training images out for it, with torch.utils.data.random_split for instance"
        )
    return Loaders(*parts)


def _check_loader(part: str, loader: Any) -> None:
    if not isinstance(loader, Sized) or not hasattr(loader, "__iter__"):
        raise DataError(
            f"the {part} loader must be a DataLoader, or batches with a length; got {type(loader).__name__}"
        )
    try:
        length = len(loader)  # a DataLoader has the method even if its data set has no length
    except TypeError:
        raise DataError(f"the {part} loader needs a length; its data set has none: give that a __len__") from None
    if length < 1:
        raise DataError(f"the {part} loader must give at least one batch an epoch; got none: lower its batch size")
    if part != "train" and isinstance(loader, DataLoader) and isinstance(loader.sampler, RandomSampler):
        raise DataError(
            f"the {part} loader must give its images in one order; got one that shuffles: give shuffle=False"
        )


def _in_order(loader: Any, part: str) -> Iterator[Any]:
    with seed_globally(0):  # a DataLoader always draws a seed for its workers
        return _read(loader, part)


def _read(loader: Any, part: str) -> Iterator[Any]:
    """Yield the batches of a loader, whose iterator is made immediately; errors of its own code name the place.

    Raises:
        DataError: the loader raised any error.
    """
    return name_failures(
        iter(loader),
        lambda number, reason: (
            f"the {part} loader failed at batch {number} (from 0): {reason}: fix that item of the data set and run the "
            "same command again"
        ),
    )


def _check_batch(batch: Any, part: str, accepted: Accepted) -> Batch:
    rule = f"batches of the {part} loader must be pairs of float images (batch, ...) and their targets (batch, ...)"
    if isinstance(batch, Mapping):
        batch = _pair_of(batch, rule)
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise DataError(f"{rule}; got {type(batch).__name__}: give it a collate_fn that makes such pairs")
    x, y = (_nest(value, rule) for value in batch)
    inputs = tensors(x)
    # A single input has features; one of several may be a number for each item.
    least = 2 if len(inputs) == 1 else 1
    if any(t.ndim < least or not _is_input(t) for t in inputs) or any(t.ndim < 1 for t in tensors(y)):
        images = all(t.ndim == 4 for t in inputs)
        remedy = "ToTensor makes floats of images" if images else "convert them to float32, scaled as in training"
        raise DataError(f"{rule}; got {_describe(x)} and {_describe(y)}: {remedy}")
    sizes = {len(t) for t in (*inputs, *tensors(y))}
    if len(sizes) > 1:
        raise DataError(f"{rule}, one for each image; got {_describe(x)} and {_describe(y)}")
    return x, accepted(y, f"the {part} loader")


def _pair_of(batch: Mapping[str, Any], rule: str) -> tuple[Any, Any]:
    """Return inputs and targets of a dict, as made by collating dicts."""
    inputs, targets = split_dict(batch)
    if len(targets) != 1 or len(batch) < 2:
        raise DataError(
            f"{rule}, or a dict of inputs and of targets called {' or '.join(LABEL_COLUMNS)}; got a dict of "
            f"{', '.join(map(str, batch)) or 'nothing'}: give the loader a collate_fn that makes pairs"
        )
    return inputs, targets[0]


def _check_finite(batch: Batch, part: str, number: int) -> Batch:
    """Return the batch if its inputs are finite.

    Raises:
        DataError: a value is NaN or infinite.
    """
    for name, values in by_name(batch[0]).items():
        if values.is_floating_point() and not bool(values.isfinite().all()):
            broken = (~values.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
            raise DataError(
                f"inputs must be finite; {name.lstrip('.') or 'the image'} number {broken[0]} of batch {number} of the "
                f"{part} loader (both from 0) holds NaN or infinity: fix that item of the data set, or fill in missing "
                "values"
            )
    return batch


def _nest(value: Any, rule: str) -> Pytree:
    """Return a tensor, or several in a tuple or dict; a list, which collating makes of tuples, becomes a tuple."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (tuple, list)) and value and all(isinstance(part, torch.Tensor) for part in value):
        return tuple(value)
    if isinstance(value, Mapping) and value and all(isinstance(part, torch.Tensor) for part in value.values()):
        return {str(name): part for name, part in value.items()}
    got = type(value).__name__
    if isinstance(value, (tuple, list, Mapping)):
        parts = value.values() if isinstance(value, Mapping) else value
        got += f" of {next((type(part).__name__ for part in parts if not isinstance(part, torch.Tensor)), 'nothing')}"
    raise DataError(
        f"{rule}, each a tensor, or a tuple or dict of them; got {got}: give it a collate_fn that makes such pairs"
    )


def _is_input(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds floats, or integers such as tokens and lengths. Bytes are unconverted images."""
    return tensor.is_floating_point() or (tensor.dtype in (torch.int32, torch.int64, torch.bool) and tensor.ndim < 3)


def _describe(tree: Pytree) -> str:
    return ", ".join(f"{name.lstrip('.')} {t.dtype} {tuple(t.shape)}".strip() for name, t in by_name(tree).items())


def _shapes(tree: Pytree) -> str:
    return ", ".join(f"{name.lstrip('.')} {tuple(t.shape[1:])}".strip() for name, t in by_name(tree).items())


def _are_equal(a: Batch, b: Batch) -> bool:
    mine, theirs = ([*tensors(x), *tensors(y)] for x, y in (a, b))
    return all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))
