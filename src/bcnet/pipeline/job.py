"""The whole job: from a network to a narrower one under a budget, trained and compared (design, "Public surface")."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bcnet.data import DataSet
from bcnet.distributed import World, joined
from bcnet.errors import BudgetError
from bcnet.pipeline.conduct import agreed, check_seconds, conduct
from bcnet.pipeline.course import TO_THE_PRIOR, SearchOutcome, TrainedSupernet, to_the_end, to_the_prior
from bcnet.pipeline.progress import Reporter
from bcnet.pipeline.run_directory import check_usable
from bcnet.pipeline.settings import Settings, default_recipe, make_settings, split_changes
from bcnet.pipeline.subject import ModelLike, Source, Subject, open_source, prepare
from bcnet.space import Budget
from bcnet.train import CHECKPOINT_SECONDS, Recipe, load_recipe


def search(
    model: ModelLike,
    data: str | DataSet,
    *,
    budget: Budget,
    run_dir: str | Path,
    recipe: Recipe | str | None = None,
    supernet_epochs: int | None = None,
    changes: Mapping[str, Any] | None = None,
    image_size: int | None = None,
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **settings: Any,
) -> SearchOutcome:
    """Find, train and compare the best widths of `model` under `budget`: supernet, prior, evolution, final networks.

    Where `run_dir` holds the same run unfinished it goes on, and what is finished is not done again. Started by
    torchrun, all processes make this call, share the work and get the same result (docs/distributed.md).

    Args:
        model: an `nn.Module`, a function without arguments that makes one, or a name as `--model` takes it. A module's
            own weights are where the supernet starts from, so that a run goes on with the same weights only.
        data: a `DataSet`, or a name as `--data` takes it.
        budget: the limit, for instance `Budget(macs=0.5)`.
        run_dir: a new folder, an empty one, or one of a run with the same settings.
        recipe: how to train, as a value, a name or a YAML file; by default one that suits model and data.
        supernet_epochs: epochs of the supernet where they are not the recipe's.
        changes: other values in the recipe, for instance `{"epochs": 20, "supernet.lr": 0.2}`.
        image_size: pixels, where not the model's usual ones; for data given by name.
        reporter: hears about progress.
        checkpoint_seconds: the most training that is lost when the run is killed; longer where saving takes so long
            that it would cost more than 2 % of the time.
        **settings: any other field of `Settings`: seed, population, generations, num_choices, threads, ...

    Raises:
        BCNetError: with one message that says what is wrong, what was got, and what to do. Nothing is written before
            model, data, space and budget are known to fit.

    Example: `search(resnet, "cifar10", budget=Budget(macs=0.5), run_dir="runs/half").network`
    """
    check_seconds(checkpoint_seconds)
    with joined(settings.get("device")) as world:
        subject, settled = settle(
            model,
            data,
            budget=budget,
            run_dir=run_dir,
            recipe=recipe,
            supernet_epochs=supernet_epochs,
            changes=changes,
            image_size=image_size,
            world=world,
            **settings,
        )
        return conduct(
            to_the_end,
            subject,
            settled,
            Path(run_dir),
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
        )


def train_supernet(
    model: ModelLike,
    data: str | DataSet,
    *,
    run_dir: str | Path,
    budget: Budget | None = None,
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **options: Any,
) -> TrainedSupernet:
    """The first part of `search` alone: train the supernet and learn the prior for `budget`, by default half the MACs.

    `search` with the same arguments goes on with it; `evolve` searches under this or another budget.

    Args:
        model, data, run_dir, reporter, checkpoint_seconds: as in `search`.
        budget: what the prior is for.
        **options: the other arguments of `search`.

    Raises:
        BCNetError: as `search`.

    Example: `train_supernet("vgg19", "cifar10", run_dir="runs/vgg")`, then
    `evolve("runs/vgg", budget=Budget(macs=0.3), run_dir="runs/vgg-0.3")`.
    """
    check_seconds(checkpoint_seconds)
    wanted = budget or Budget(macs=0.5)
    with joined(options.get("device")) as world:
        subject, settled = settle(model, data, budget=wanted, run_dir=run_dir, world=world, **options)
        return conduct(
            to_the_prior,
            subject,
            settled,
            Path(run_dir),
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            stages=TO_THE_PRIOR,
        )


def settle(
    model: ModelLike,
    data: str | DataSet,
    *,
    budget: Budget,
    run_dir: str | Path,
    recipe: Recipe | str | None = None,
    supernet_epochs: int | None = None,
    changes: Mapping[str, Any] | None = None,
    image_size: int | None = None,
    world: World | None = None,
    **settings: Any,
) -> tuple[Subject, Settings]:
    """What a run with these arguments of `search` works on, and all its settings; nothing is written.

    `world` are the processes that will share the run, by default this one alone.

    Raises:
        BCNetError: something that `search` would refuse.
    """
    if not isinstance(budget, Budget):
        raise BudgetError(f"a budget is a bcnet.Budget; got {budget!r}: write Budget(macs=0.5), for instance")
    path = Path(run_dir)
    world = world or World()
    world.on_lead(lambda: check_usable(path))
    source = open_source(model, data, image_size=image_size, seed=settings.get("seed", 0))
    supernet, final = recipes_for(source, recipe, dict(changes or {}), supernet_epochs)
    request = make_settings(
        model=source.model_name,
        data=source.data_name,
        image_size=image_size,
        budget_macs=budget.macs,
        budget_params=budget.params,
        supernet=supernet,
        final=final,
        processes=world.size,
        **settings,
    )
    settled = agreed(request, source, path, world, largest_activation=source.largest_activation())
    return prepare(source, settled), settled


def recipes_for(
    source: Source, recipe: Recipe | str | None, changes: dict[str, Any], supernet_epochs: int | None = None
) -> tuple[Recipe, Recipe]:
    """The recipes of the supernet and of the networks trained from scratch, by default those that suit the source."""
    if not isinstance(recipe, Recipe):
        name = recipe or default_recipe(source.model_name, source.data_name, source.data.image_shape[1])
        recipe = load_recipe(name)
    for_supernet, for_final = split_changes(changes)
    if supernet_epochs is not None:
        for_supernet["epochs"] = supernet_epochs
    # A supernet has no teacher: every path would need its own.
    supernet = recipe.changed(for_supernet).model_copy(update={"distillation": None})
    return supernet, recipe.changed(for_final)
