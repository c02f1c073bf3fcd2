"""Which recipes a run trains with: the one that was asked for or that suits model and data, with its changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bcnet.data import Loaders
from bcnet.errors import RecipeError
from bcnet.pruners import PRUNERS, check_installed
from bcnet.run.settings import make_settings
from bcnet.run.workload import Source
from bcnet.train import Cosine, Recipe, load_recipe, recipe_names

# Of a recipe that the user has not chosen.
_FEWEST_STEPS = 4
_SMALLEST_BATCH = 8
_SOME = Recipe(lr=0.1, batch_size=1, epochs=1)


def check_request(
    recipe: Recipe | str | None, changes: Mapping[str, Any], settings: Mapping[str, Any]
) -> Recipe | None:
    """Refuse what no model and no data could make right, so that none are fetched for it; read the recipe asked for.

    Where that is left open, changes are refused that no recipe of the library takes; the others are tried once model
    and data have decided it.

    Raises:
        RecipeError: the key at fault, what was expected, what was got, or a package that is missing.
    """
    asked = recipe if recipe is None or isinstance(recipe, Recipe) else load_recipe(recipe)
    for own in split_changes(changes):
        if asked is not None:
            asked.changed(own)
        elif own:
            _check_open(own)
    some = asked or _SOME.changed({"batch_size": settings["processes"]})
    baseline = make_settings(model="", data="", supernet=some, final=some, **settings).baseline
    if baseline is not None and baseline in PRUNERS:
        check_installed(baseline)
    return asked


def _check_open(changes: Mapping[str, Any]) -> None:
    refusals = []
    for name in recipe_names():
        try:
            load_recipe(name).changed(changes)
            return
        except RecipeError as refusal:
            refusals.append(refusal)
    # A wrong value says more where its key is known: to most schedules that of another is unknown.
    raise min(refusals, key=lambda refusal: "unknown key" in str(refusal))


def recipes_for(source: Source, recipe: Recipe | None, changes: Mapping[str, Any]) -> tuple[Recipe, Recipe]:
    """The recipes of the supernet and of the networks trained from scratch, by default those that suit the source.

    A batch that nobody chose is made to suit few images too.
    """
    fits = recipe is None and not isinstance(source.data, Loaders)
    if recipe is None:
        recipe = load_recipe(default_recipe(source.model_name, source.data_name, source.data.image_shape[-1]))
    if isinstance(source.data, Loaders) and source.data.batch_size is not None:
        recipe = recipe.changed({"batch_size": source.data.batch_size})
    small = for_few_images(recipe, len(source.data.train)) if fits else recipe
    supernet, final = ((recipe if "batch_size" in own else small).changed(own) for own in split_changes(changes))
    # A supernet has no teacher: every path would need its own.
    return supernet.model_copy(update={"distillation": None}), final


def default_recipe(model: str, data: str, image_size: int) -> str:
    """The name of the recipe that suits a model and a data set best, by the table in the spec's section 7."""
    network = model.rpartition(":")[2].lower().replace("_", "")
    if data == "digits":
        return "digits"
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
    return recipe.changed(changes) if share < 1 else recipe


def split_changes(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Changes for the supernet's and the final recipe: a key starting with `supernet.` or `final.` is for that one."""
    supernet: dict[str, Any] = {}
    final: dict[str, Any] = {}
    for key, value in changes.items():
        owner, dot, rest = key.partition(".")
        if dot and owner == "supernet":
            supernet[rest] = value
        elif dot and owner == "final":
            final[rest] = value
        else:
            supernet[key] = final[key] = value
    return supernet, final
