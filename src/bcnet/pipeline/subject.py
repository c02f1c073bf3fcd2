"""What a run works on: the model, its width space, and the data cut into its parts."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from bcnet.data import DataSet, Images, TrainingBatches, fixed_batches, load, split_validation
from bcnet.data.batches import Batch
from bcnet.errors import DataError, ModelError
from bcnet.models import ModelSpec, create, imports_code
from bcnet.pipeline.augmenting import augmentation_of, held_out_share
from bcnet.pipeline.inputs import InputFacts
from bcnet.pipeline.machine import largest_activation, memory_format
from bcnet.pipeline.settings import Settings
from bcnet.space import WidthSpace
from bcnet.train import Recipe, derived_seed

ModelLike = nn.Module | Callable[[], nn.Module] | str
Factory = Callable[[], nn.Module]


@dataclass(frozen=True)
class Source:
    """A model and a data set that fit each other, with the names under which the settings know them.

    `data_digest` tells images and labels from any others.
    """

    model_name: str
    data_name: str
    data_digest: str
    data: DataSet
    model: nn.Module
    factory: Factory | None

    @property
    def input(self) -> InputFacts:
        """What the networks take."""
        return InputFacts(self.data.image_shape, self.data.class_names, self.data.normaliser)

    def largest_activation(self) -> int:
        """Bytes of the largest activation of the model for one image; 0 where it does not run on the images."""
        try:
            return largest_activation(
                copy.deepcopy(self.model).eval(), self.data.normaliser(self.data.train.pixels[:2])
            )
        except Exception:  # tracing says what is wrong with it
            return 0


@dataclass(frozen=True)
class Subject:
    """A source with its width space, on the run's device.

    `training` is what the supernet learns from, `all_training` what final networks learn from; `validation` scores
    candidates and `fresh` scores the best again, in equal fixed batches.
    """

    source: Source
    model: nn.Module
    space: WidthSpace
    training: TrainingBatches
    all_training: TrainingBatches
    validation: list[Batch]
    fresh: list[Batch]
    data: DataSet


def is_name(model: str) -> bool:
    """Whether the settings' `model` is a name, not the description of an object that was passed in."""
    return " " not in model


def refuse_to_import(name: str, place: Path) -> None:
    """Raise ModelError where the model that a file names would import code: a file may come from a stranger."""
    if imports_code(name):
        raise ModelError(
            f"{place} is of the model {name!r}, which imports and runs that code; a file may come from a stranger, so "
            f"name it yourself: --model {name}, in Python {name!r} as the model"
        )


def open_source(model: ModelLike, data: str | DataSet, *, image_size: int | None, seed: int) -> Source:
    """Load data and make the model for it.

    A model given by name gets the data's classes and channels, and the data the model's usual image size unless
    `image_size` says otherwise. A model of the user's own gets the images as they are.

    Raises:
        ModelError: an unknown model, or a factory that gives none.
        DataError: an unknown or unusable data set.
    """
    if not isinstance(data, (str, DataSet)):
        raise DataError(
            f"data is a name or a bcnet.DataSet; got {type(data).__name__}: DataSet.from_datasets makes one of yours"
        )
    if image_size is not None and isinstance(data, DataSet) and data.image_shape[1:] != (image_size, image_size):
        raise DataError(
            f"image_size is for data given by name; got {image_size} with images of {data.image_shape[1:]} pixels: "
            "give it to DataSet.from_datasets"
        )
    spec = create(model) if isinstance(model, str) else None
    size = image_size if image_size is not None or spec is None else _usual_size(spec)
    loaded = load(data, image_size=size) if isinstance(data, str) else data
    digest = _digest_of_images(loaded)
    data_name = data if isinstance(data, str) else f"{loaded.name} {digest}"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "model"))
        channels, height, _ = loaded.image_shape
        name, network, factory = make_model(model, loaded.num_classes, channels, height)
    return Source(name, data_name, digest, loaded, network, factory)


def prepare(source: Source, settings: Settings) -> Subject:
    """Trace the width space and cut the data, failing early where something cannot work.

    Raises:
        TraceError: the model does not run on the images, or has nothing to search.
        BudgetError: the budget is below the narrowest network.
        DataError: too few images for a batch or a split.
    """
    example = source.data.normaliser(source.data.train.pixels[:2])
    space = trace(source.model, example, settings)
    _check_logits(source, example)
    space.feasible(settings.budget)
    space.uniform(macs=settings.budget_macs, params=settings.budget_params)
    assert settings.device is not None
    data = source.data.to(settings.device)
    model = copy.deepcopy(source.model).to(settings.device, memory_format=memory_format(settings.layout))  # type: ignore[call-overload]
    fresh_seed, validation_seed = (derived_seed(settings.seed, part) for part in ("fresh", "validation"))
    shares = [held_out_share(data.train, f) for f in (settings.fresh_fraction, settings.validation_fraction)]
    rest, fresh = split_validation(data.train, shares[0], seed=fresh_seed)
    share = shares[1] / (1 - shares[0])
    training, validation = split_validation(rest, share, seed=validation_seed)
    return Subject(
        source,
        model,
        space,
        _training_batches(data, training, settings.supernet),
        _training_batches(data, data.train, settings.final),
        _scoring_batches(data, validation, settings),
        _scoring_batches(data, fresh, settings),
        data,
    )


def trace(model: nn.Module, example: torch.Tensor, settings: Settings) -> WidthSpace:
    """The model's width space as the settings want it; `example` is a batch of two images."""
    return WidthSpace.trace(
        copy.deepcopy(model),
        example,
        num_choices=settings.num_choices,
        min_ratio=settings.min_ratio,
        multiple_of=settings.multiple_of,
        ignore=settings.ignore,
        only=settings.only,
    )


def _training_batches(data: DataSet, images: Images, recipe: Recipe) -> TrainingBatches:
    return TrainingBatches(images, recipe.batch_size, data.normaliser, augmentation_of(recipe, data))


def _scoring_batches(data: DataSet, images: Images, settings: Settings) -> list[Batch]:
    assert settings.score_batch_size is not None
    size = min(settings.score_batch_size, len(images))
    batches = fixed_batches(images, size, data.normaliser, seed=settings.seed)
    return [(x.to(settings.device), y.to(settings.device)) for x, y in batches]


def _usual_size(spec: ModelSpec) -> int | None:
    family, colon, _ = spec.name.partition(":")
    own = bool(colon) and family not in ("torchvision", "timm")
    return None if own else spec.input_size[1]


def make_model(model: ModelLike, classes: int, channels: int, image_size: int) -> tuple[str, nn.Module, Factory | None]:
    """The settings' name for a model, the module, and what makes another one of it.

    A model given by name gets the classes, channels and image size; others are as they are.

    Raises:
        ModelError: an unknown model, or a factory that gives none.
    """
    if isinstance(model, str):
        spec = create(model, classes, in_channels=channels, image_size=image_size)
        return model, spec.build(), spec.build
    if isinstance(model, nn.Module):
        return f"{type(model).__qualname__} {_digest_of_weights(model)}", model, None
    if not callable(model):
        raise ModelError(f"a model is an nn.Module, a function that makes one, or a name; got {type(model).__name__}")
    try:
        made = model()
    except Exception as error:
        raise ModelError(
            f"a model factory has to run without arguments; it failed with {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, nn.Module):
        raise ModelError(
            f"a model factory must return a torch.nn.Module; got {type(made).__name__}: return the network"
        )
    return f"{type(made).__qualname__} from a factory", made, model


def _check_logits(source: Source, example: torch.Tensor) -> None:
    network = copy.deepcopy(source.model).eval()
    with torch.no_grad():
        logits = network(example)
    classes = source.data.num_classes
    shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or logits.shape[1] < classes:
        raise ModelError(
            f"the model must return logits (batch, classes), at least {classes} classes for {source.data.name!r}; "
            f"got {shape}: change its last layer"
        )


def _digest_of_weights(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def _digest_of_images(data: DataSet) -> str:
    return hashlib.sha256(f"{data.train.digest()} {data.test.digest()}".encode()).hexdigest()[:12]
