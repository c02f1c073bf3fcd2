"""The training recipe of a run: the requested one, or the default for model and data, with changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bcnet.data import Loaders
from bcnet.errors import RecipeError
from bcnet.run.workload import Source
from bcnet.train import Cosine, Recipe, load_recipe, recipe_names

TrainingLike = Recipe | str | Mapping[str, Any]
_FEWEST_STEPS = 4  # of an epoch, for a recipe that the user did not choose
_SMALLEST_BATCH = 8


def check_training(training: TrainingLike | None, epochs: int | None) -> tuple[Recipe | None, dict[str, Any]]:
    """Return the requested recipe, if any, and changes to it.

    A recipe is an object, a name, or a YAML file; a mapping holds changes to the default recipe for model and data.
    Values that are invalid for any model and data are refused here, before data are loaded.

    Raises:
        RecipeError: the key, the expected value, and the value received.
    """
    changes: dict[str, Any] = dict(training) if isinstance(training, Mapping) else {}
    requested = load_recipe(training) if isinstance(training, str) else training
    if requested is not None and not isinstance(requested, (Recipe, Mapping)):
        raise RecipeError(
            f"training must be a bcnet.Recipe, its name, or a mapping of changes; got {requested!r}: see `bcnet "
            "recipes`"
        )
    recipe = requested if isinstance(requested, Recipe) else None
    base = changes.pop("recipe", None)
    if base is not None:
        recipe = load_recipe(base) if isinstance(base, str) else Recipe.model_validate(base)
    if epochs is not None:
        if changes.get("epochs", epochs) != epochs:
            other = changes["epochs"]
            raise RecipeError(f"epochs must be given once; got epochs={epochs} and training's {other}: leave one out")
        changes["epochs"] = epochs
    # A recipe is complete, so its changes are checked now; the default one is known when the data are.
    if recipe is not None:
        return recipe.with_changes(changes), {}
    if changes:
        _check_open(changes)
    return None, changes


def _check_open(changes: Mapping[str, Any]) -> None:
    refusals = []
    for name in recipe_names():
        try:
            load_recipe(name).with_changes(changes)
            return
        except RecipeError as refusal:
            refusals.append(refusal)
    # An invalid value gives the better message if its key is known; most keys of other schedules are unknown.
    raise min(refusals, key=lambda refusal: "unknown key" in str(refusal))


def recipe_for(source: Source, recipe: Recipe | None, changes: Mapping[str, Any]) -> Recipe:
    """Return the recipe of the final networks, by default the one that suits the source.

    A default batch size is reduced for small data sets.
    """
    images = source.data.trained_on
    fits = recipe is None and "batch_size" not in changes
    if recipe is None:
        name = default_recipe(source.model_name, source.data_name, source.data.image_shape[-1])
        if source.task.imitates and name != source.data_name:
            name = "imitation"  # learning rates for training from scratch can ruin other networks
        recipe = load_recipe(name)
        if source.task.imitates:
            recipe = recipe.model_copy(update={"label_smoothing": 0.0, "distillation": None})
    if isinstance(source.data, Loaders) and source.data.batch_size is not None:
        recipe = recipe.with_changes({"batch_size": source.data.batch_size})
    if fits and images is not None:
        recipe = for_few_images(recipe, images)
    return recipe.with_changes(changes)


def default_recipe(model: str, data: str, image_size: int) -> str:
    """Return the name of the default recipe for a model and a data set (spec, section 7)."""
    network = model.rpartition(":")[2].lower().replace("_", "")
    if data == "digits":
        return "digits"
    if data == "scattered_digits":
        return "scattered_digits"
    if image_size <= 64:
        small = {"vgg": "vgg19-cifar10", "mobilenet": "mobilenetv2-cifar10"}
        return next((name for prefix, name in small.items() if network.startswith(prefix)), "resnet-cifar10")
    large = {
        "mobilenet": "mobilenet_v2-imagenet",
        "efficientnet": "efficientnet_b0-imagenet",
        "proxyless": "efficientnet_b0-imagenet",
    }
    return next((name for prefix, name in large.items() if network.startswith(prefix)), "resnet50-imagenet")


def for_few_images(recipe: Recipe, images: int) -> Recipe:
    """Return the recipe with batch size and learning rate halved until an epoch has a few steps.

    Source: linear scaling of the learning rate with the batch size (Goyal et al., 2017).
    """
    batch = recipe.batch_size
    while images < _FEWEST_STEPS * batch and batch > _SMALLEST_BATCH:
        batch = max(batch // 2, _SMALLEST_BATCH)
    share = batch / recipe.batch_size
    changes = {"batch_size": batch, "lr": recipe.lr * share}
    if isinstance(recipe.schedule, Cosine):
        changes["schedule.final_lr"] = recipe.schedule.final_lr * share
    return recipe.with_changes(changes) if share < 1 else recipe
