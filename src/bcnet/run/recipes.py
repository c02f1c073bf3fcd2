"""The recipe that a run trains with: the one that was asked for or that suits model and data, with its changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bcnet.data import Loaders
from bcnet.errors import RecipeError
from bcnet.run.workload import Source
from bcnet.train import Cosine, Recipe, load_recipe, recipe_names

TrainingLike = Recipe | str | Mapping[str, Any]
_FEWEST_STEPS = 4  # of an epoch, of a recipe that the user has not chosen
_SMALLEST_BATCH = 8


def check_training(training: TrainingLike | None, epochs: int | None) -> tuple[Recipe | None, dict[str, Any]]:
    """Return the recipe that was asked for, if any, and changes to it.

    A recipe is a value, a name, or a YAML file; a mapping holds changes to the recipe that suits model and data. What
    no model and no data could make right is refused, so that none are fetched for it.

    Raises:
        RecipeError: the key at fault, what was expected, what was got.
    """
    changes: dict[str, Any] = dict(training) if isinstance(training, Mapping) else {}
    asked = load_recipe(training) if isinstance(training, str) else training
    if asked is not None and not isinstance(asked, (Recipe, Mapping)):
        raise RecipeError(
            f"training is a bcnet.Recipe, the name of one, or a mapping of changes; got {asked!r}: see bcnet recipes"
        )
    recipe = asked if isinstance(asked, Recipe) else None
    base = changes.pop("recipe", None)
    if base is not None:
        recipe = load_recipe(base) if isinstance(base, str) else Recipe.model_validate(base)
    if epochs is not None:
        if changes.get("epochs", epochs) != epochs:
            told = changes["epochs"]
            raise RecipeError(f"epochs are given once; got epochs={epochs} and training's {told}: leave one out")
        changes["epochs"] = epochs
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
    # A wrong value says more where its key is known: to most schedules that of another is unknown.
    raise min(refusals, key=lambda refusal: "unknown key" in str(refusal))


def recipe_for(source: Source, recipe: Recipe | None, changes: Mapping[str, Any]) -> Recipe:
    """Return the recipe of the final networks, by default one that suits the source.

    A batch that nobody chose is made to suit few images too.
    """
    images = source.data.trained_on
    fits = recipe is None and "batch_size" not in changes
    if recipe is None:
        name = default_recipe(source.model_name, source.data_name, source.data.image_shape[-1])
        if source.task.imitates and name != source.data_name:
            name = "imitation"  # the rates of classifiers that are trained from scratch can ruin other networks
        recipe = load_recipe(name)
        if source.task.imitates:
            recipe = recipe.model_copy(update={"label_smoothing": 0.0, "distillation": None})
    if isinstance(source.data, Loaders) and source.data.batch_size is not None:
        recipe = recipe.with_changes({"batch_size": source.data.batch_size})
    if fits and images is not None:
        recipe = for_few_images(recipe, images)
    return recipe.with_changes(changes)


def default_recipe(model: str, data: str, image_size: int) -> str:
    """The name of the recipe that suits a model and a data set best, by the table in the spec's section 7."""
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
    """The recipe with its batch halved until an epoch of so many images has a few steps; the rate shrinks with it.

    A rate that suits one batch suits a smaller one in proportion (Goyal et al., 2017).
    """
    batch = recipe.batch_size
    while images < _FEWEST_STEPS * batch and batch > _SMALLEST_BATCH:
        batch = max(batch // 2, _SMALLEST_BATCH)
    share = batch / recipe.batch_size
    changes = {"batch_size": batch, "lr": recipe.lr * share}
    if isinstance(recipe.schedule, Cosine):
        changes["schedule.final_lr"] = recipe.schedule.final_lr * share
    return recipe.with_changes(changes) if share < 1 else recipe
