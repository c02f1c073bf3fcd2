"""The data of a run, split into parts for training, scoring and testing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch

from bcnet.data import (
    Augmentation,
    Batch,
    DataSet,
    FilePixels,
    Images,
    Loaders,
    ResizedCrop,
    TrainingBatches,
    all_batches,
    cut,
    fixed_batches,
    split_validation,
)
from bcnet.data.loaders import Held
from bcnet.data.transfer import move
from bcnet.machine.defaults import lives_on
from bcnet.machine.memory import free_bytes
from bcnet.pytree import count
from bcnet.run.settings import Settings
from bcnet.train import EpochBatches, Recipe, derived_seed
from bcnet.train.recipe import Crop

_MOST_HELD_OUT = 5000  # images in files: more would not fit into memory, and scoring would take hours


@dataclass(frozen=True)
class Parts:
    """The parts of the data.

    `training` is for the supernet, `all_training` for final networks, `validation` for scoring candidates and `fresh`
    for scoring the best again (both in equal fixed batches). `test()` returns test batches of any size.
    """

    training: EpochBatches
    all_training: EpochBatches
    validation: list[Batch]
    fresh: list[Batch]
    test: Callable[[], Iterable[Batch]]


def cut_data(data: DataSet | Loaders, settings: Settings) -> Parts:
    """Split the data on the run's device.

    Raises:
        DataError: too few images for a batch or a split.
    """
    return _cut_loaders(data, settings) if isinstance(data, Loaders) else _cut_images(data, settings)


def _cut_images(source: DataSet, settings: Settings) -> Parts:
    options = settings.options
    assert options.device is not None
    assert options.score_batch_size is not None
    most = options.score_batch_size
    device = torch.device(options.device)
    source = _with_workers(source, options.workers)
    data = source.to(device) if lives_on(device, source.nbytes, free_bytes(device)) else source
    fresh_seed, validation_seed = (derived_seed(settings.seed, part) for part in ("fresh", "validation"))
    if data.validation is None:
        shares = [held_out_share(data.train, f) for f in (options.fresh_fraction, options.validation_fraction)]
        rest, fresh = split_validation(data.train, shares[0], seed=fresh_seed)
        training, validation = split_validation(rest, shares[1] / (1 - shares[0]), seed=validation_seed)
    else:
        training = data.train
        held = _at_most(data.validation, 2 * _MOST_HELD_OUT, validation_seed)
        validation, fresh = split_validation(held, options.fresh_share, seed=fresh_seed)

    def batches(images: Images, recipe: Recipe) -> TrainingBatches:
        augmentation = augmentation_of(recipe, data)
        return TrainingBatches(images, recipe.batch_size, source.normaliser, augmentation, device=device)

    def scoring_batches(images: Images) -> list[Batch]:
        return [*fixed_batches(images, min(most, len(images)), source.normaliser, seed=settings.seed, device=device)]

    def test() -> Iterable[Batch]:
        return all_batches(data.test, min(most, len(data.test)), source.normaliser, device=device)

    return Parts(
        batches(training, settings.supernet_recipe),
        batches(data.train, settings.training),
        scoring_batches(validation),
        scoring_batches(fresh),
        test,
    )


def _with_workers(data: DataSet, workers: int | None) -> DataSet:
    """Return the data with this number of processes for images in files; unchanged for None."""

    def of(images: Images) -> Images:
        if workers is None or not isinstance(images.pixels, FilePixels):
            return images
        return replace(images, pixels=replace(images.pixels, workers=workers))

    return data.with_each(of)


def _at_most(images: Images, most: int, seed: int) -> Images:
    """Return the images; of images in files, a class-balanced sample of at most `most`."""
    if not isinstance(images.pixels, FilePixels) or len(images) <= most:
        return images
    return split_validation(images, most / len(images), seed=seed)[1]


def _cut_loaders(loaders: Loaders, settings: Settings) -> Parts:
    options = settings.options
    assert options.score_batch_size is not None
    assert options.device is not None
    most = options.score_batch_size
    scoring, again = loaders.split(options.fresh_share, derived_seed(settings.seed, "fresh"))

    device = options.device

    def batches(part: Held) -> list[Batch]:
        whole = cut(part, min(most, count(part[1])), seed=settings.seed)
        return [(move(x, device), move(y, device)) for x, y in whole]

    return Parts(
        loaders.training_batches(settings.supernet_recipe.batch_size),
        loaders.all_training_batches(settings.training.batch_size),
        batches(scoring),
        batches(again),
        loaders.test_batches,
    )


def augmentation_of(recipe: Recipe, data: DataSet) -> Augmentation | ResizedCrop:
    """Return the recipe's augmentation, or the data set's default."""
    wanted = recipe.augmentation
    if wanted is None:
        return data.augmentation
    if isinstance(wanted, Crop):
        return Augmentation(wanted.padding, wanted.flip)
    return ResizedCrop(wanted.min_area, wanted.flip, wanted.colour_jitter)


def held_out_share(images: Images, fraction: float) -> float:
    """Return the share of training images to hold out: `fraction`, or at most 5,000 images for images in files."""
    if isinstance(images.pixels, FilePixels):
        return min(fraction, _MOST_HELD_OUT / len(images))
    return fraction
