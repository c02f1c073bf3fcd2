"""The data of a run, cut into what trains, what scores, and what tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from bcnet.data import (
    Batch,
    DataSet,
    Images,
    Loaders,
    TrainingBatches,
    all_batches,
    cut,
    fixed_batches,
    split_validation,
)
from bcnet.data.loaders import Held
from bcnet.data.transfer import moved
from bcnet.machine.defaults import lives_on
from bcnet.machine.memory import free_bytes
from bcnet.nests import count
from bcnet.run.augmenting import augmentation_of, held_out_share
from bcnet.run.settings import Settings
from bcnet.train import EpochBatches, Recipe, derived_seed


@dataclass(frozen=True)
class Parts:
    """`training` is what the supernet learns from, `all_training` what final networks learn from; `validation` scores
    candidates and `fresh` scores the best again, in equal fixed batches; `test()` gives the test batches, of any size.
    """

    training: EpochBatches
    all_training: EpochBatches
    validation: list[Batch]
    fresh: list[Batch]
    test: Callable[[], Iterable[Batch]]


def cut_data(data: DataSet | Loaders, settings: Settings) -> Parts:
    """Cut the data, on the run's device.

    Raises:
        DataError: too few images for a batch or a split.
    """
    return _cut_loaders(data, settings) if isinstance(data, Loaders) else _cut_images(data, settings)


def _cut_images(source: DataSet, settings: Settings) -> Parts:
    assert settings.device is not None
    assert settings.score_batch_size is not None
    most, device = settings.score_batch_size, torch.device(settings.device)
    data = source.to(device) if lives_on(device, source.nbytes, free_bytes(device)) else source
    fresh_seed, validation_seed = (derived_seed(settings.seed, part) for part in ("fresh", "validation"))
    shares = [held_out_share(data.train, f) for f in (settings.fresh_fraction, settings.validation_fraction)]
    rest, fresh = split_validation(data.train, shares[0], seed=fresh_seed)
    training, validation = split_validation(rest, shares[1] / (1 - shares[0]), seed=validation_seed)

    def batches(images: Images, recipe: Recipe) -> TrainingBatches:
        augmentation = augmentation_of(recipe, data)
        return TrainingBatches(images, recipe.batch_size, source.normaliser, augmentation, device=device)

    def scoring(images: Images) -> list[Batch]:
        return [*fixed_batches(images, min(most, len(images)), source.normaliser, seed=settings.seed, device=device)]

    def test() -> Iterable[Batch]:
        return all_batches(data.test, min(most, len(data.test)), source.normaliser, device=device)

    return Parts(
        batches(training, settings.supernet),
        batches(data.train, settings.final),
        scoring(validation),
        scoring(fresh),
        test,
    )


def _cut_loaders(loaders: Loaders, settings: Settings) -> Parts:
    assert settings.score_batch_size is not None
    assert settings.device is not None
    most = settings.score_batch_size
    share = settings.fresh_fraction / (settings.fresh_fraction + settings.validation_fraction)
    scoring, again = loaders.split(share, derived_seed(settings.seed, "fresh"))

    device = settings.device

    def batches(part: Held) -> list[Batch]:
        whole = cut(part, min(most, count(part[1])), seed=settings.seed)
        return [(moved(x, device), moved(y, device)) for x, y in whole]

    training = loaders.training()
    return Parts(training, training, batches(scoring), batches(again), loaders.testing)
