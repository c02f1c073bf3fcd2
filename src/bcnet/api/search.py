"""The whole job: from a network to a narrower one under a budget, trained and compared (design, "Public surface")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bcnet.distributed import World, joined
from bcnet.errors import BudgetError, RecipeError
from bcnet.progress.base import Reporter, Together
from bcnet.progress.callbacks import Callbacks
from bcnet.report import reported
from bcnet.run.callables import OfWidths, own_functions
from bcnet.run.directory import check_usable
from bcnet.run.pretrained import Weights
from bcnet.run.recipes import check_request, recipes_for
from bcnet.run.settings import Settings, make_settings
from bcnet.run.subject import DataLike, ModelLike, Source, Subject, open_source, prepare
from bcnet.searchers import PerImage
from bcnet.space import Budget
from bcnet.stages.conduct import agreed, check_seconds, conduct
from bcnet.stages.course import TO_THE_PRIOR, SearchOutcome, TrainedSupernet, to_the_end, to_the_prior
from bcnet.stages.takeover import others
from bcnet.train import CHECKPOINT_SECONDS, Loss, Recipe


def search(
    model: ModelLike,
    data: DataLike,
    *,
    budget: Budget,
    run_dir: str | Path,
    recipe: Recipe | str | None = None,
    supernet_epochs: int | None = None,
    changes: Mapping[str, Any] | None = None,
    image_size: int | None = None,
    pretrained: Weights | None = None,
    loss: Loss | None = None,
    score: str | PerImage | OfWidths = "accuracy",
    tags: Mapping[str, str] | None = None,
    callbacks: Callbacks | None = None,
    progress: bool = False,
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    take_from: Sequence[str | Path] = (),
    **settings: Any,
) -> SearchOutcome:
    """Find, train and compare the best widths of `model` under `budget`: supernet, prior, evolution, final networks.

    Where `run_dir` holds the same run unfinished it goes on, and what is finished is not done again. Started by
    torchrun, all processes make this call, share the work and get the same result (docs/distributed.md).

    Args:
        model: an `nn.Module`, a function without arguments that makes one, or a name as `--model` takes it. A module's
            own weights are where the supernet starts from, so that a run goes on with the same weights only.
        data: a name as `--data` takes it, a `DataSet`, two torch datasets `(train, test)` of images and labels (see
            `DataSet.from_datasets`), or three loaders `(train, validation, test)` whose batches and augmentation are
            used as they come (see `Loaders`, also for what they have to keep for a run to be repeatable).
        budget: the limit, for instance `Budget(macs=0.5)`.
        run_dir: a new folder, an empty one, or one of a run with the same settings.
        recipe: how to train, as a value, a name or a YAML file; by default one that suits model and data.
        supernet_epochs: epochs of the supernet where they are not the recipe's.
        changes: other values in the recipe, for instance `{"epochs": 20, "supernet.lr": 0.2}`.
        image_size: pixels, where not the model's usual ones; for data given by name.
        pretrained: weights that the model starts from, a state dict or a safetensors file. The supernet starts from
            them; the final networks do with `final_from="pretrained"`. Tensors of another shape, as of a last layer
            for other classes, are left out.
        loss: a function of logits `(batch, classes)` and labels `(batch,)` that gives a scalar, in place of
            cross-entropy (and label smoothing) in all training.
        score: how widths are judged, higher being better: "accuracy", "loss", a function of logits and labels that
            gives a value for each image `(batch,)`, averaged over validation images and both sides, or a function of
            widths alone that gives a number.
        tags: names for `loss` and `score` where the functions have none that a resumed run could know them by.
        callbacks: functions of your own that hear of steps, evaluations and stages.
        progress: show progress bars in a notebook or terminal, and lines elsewhere.
        reporter: hears about progress.
        checkpoint_seconds: the most training that is lost when the run is killed; longer where saving takes so long
            that it would cost more than 2 % of the time.
        take_from: other runs of the model on the data; what they have finished and share with this one is taken over,
            never done again. All runs of one seed and recipe share the original, those of one budget Uniform as well.
        **settings: any other field of `Settings`: seed, population, generations, num_choices, threads, ... With
            `final_from="supernet"` or `"pretrained"` all three final networks are fine-tuned, from the first channels
            of every group, and not trained from scratch.

    Raises:
        BCNetError: with one message that says what is wrong, what was got, and what to do. Nothing is written before
            model, data, space and budget are known to fit.

    Example: `search(resnet, "cifar10", budget=Budget(macs=0.5), run_dir="runs/half").network`
    """
    check_seconds(checkpoint_seconds)
    heard = [r for r in (reporter, callbacks, _shown() if progress else None) if r is not None]
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
            pretrained=pretrained,
            loss=loss,
            score=score,
            tags=tags,
            **settings,
        )
        outcome = conduct(
            to_the_end,
            subject,
            settled,
            Path(run_dir),
            world,
            reporter=Together(*heard),
            checkpoint_seconds=checkpoint_seconds,
            take_from=others(take_from, Path(run_dir)),
        )
    return reported(outcome)


def _shown() -> Reporter:
    from bcnet.progress.terminal import console_reporter

    return console_reporter()


def train_supernet(
    model: ModelLike,
    data: DataLike,
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
        outcome = conduct(
            to_the_prior,
            subject,
            settled,
            Path(run_dir),
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            stages=TO_THE_PRIOR,
        )
    return reported(outcome)


def settle(
    model: ModelLike,
    data: DataLike,
    *,
    budget: Budget,
    run_dir: str | Path,
    recipe: Recipe | str | None = None,
    supernet_epochs: int | None = None,
    changes: Mapping[str, Any] | None = None,
    image_size: int | None = None,
    world: World | None = None,
    pretrained: Weights | None = None,
    loss: Loss | None = None,
    score: str | PerImage | OfWidths = "accuracy",
    tags: Mapping[str, str] | None = None,
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
    own, named_score = own_functions(loss, score, tags or {})
    wanted = dict(changes or {}) | ({} if supernet_epochs is None else {"supernet.epochs": supernet_epochs})
    named: dict[str, Any] = {"score": named_score or "accuracy", "processes": world.size, **settings}
    recipe = check_request(recipe, wanted, named)
    seed = settings.get("seed", 0)
    source = open_source(model, data, image_size=image_size, seed=seed, pretrained=pretrained, own=own)
    supernet, final = recipes_for(source, recipe, wanted)
    request = make_settings(
        model=source.model_name,
        data=source.data_name,
        image_size=image_size,
        budget_macs=budget.macs,
        budget_params=budget.params,
        supernet=supernet,
        final=final,
        own_score=own.score_name,
        loss=own.loss_name,
        pretrained=source.pretrained,
        **named,
    )
    _check_start(source, request)
    settled = agreed(request, source, path, world, largest_activation=source.largest_activation())
    return prepare(source, settled), settled


def _check_start(source: Source, settings: Settings) -> None:
    """Raise RecipeError where final networks are to start from weights that there are not."""
    if settings.supernet_width > 1 and (settings.pretrained is not None or settings.final_from == "pretrained"):
        raise RecipeError(
            f"a supernet that is wider than the network starts from fresh weights; got supernet_width "
            f"{settings.supernet_width:g} with pretrained ones: leave one of them out"
        )
    tuned = [name for name in ("tune_steps", "finalist_steps") if getattr(settings, name)]
    if tuned and (source.own.of_widths is not None or not settings.has_supernet):
        what = "the baseline " + repr(settings.baseline) if settings.baseline else "a score of widths alone"
        raise RecipeError(
            f"{tuned[0]} fine-tunes candidates from the supernet's weights before they are scored, of which {what} "
            f"makes no use; got {getattr(settings, tuned[0])}: leave it out"
        )
    if settings.tune_lr_share < 1 and not tuned:
        raise RecipeError(
            f"tune_lr_share is of candidates that are fine-tuned; got {settings.tune_lr_share:g} and none that are: "
            "give tune_steps or finalist_steps as well, or leave it out"
        )
    if settings.final_from == "supernet" and not settings.has_supernet:
        raise RecipeError(
            f'final_from="supernet" needs a supernet, which the baseline {settings.baseline!r} has none of: take '
            '"scratch"'
        )
    if settings.final_from == "pretrained" and source.pretrained is None and source.factory is not None:
        raise RecipeError(
            'final_from="pretrained" needs weights to start from; there are none: give pretrained= (--pretrained), or '
            "the model as a module with its weights"
        )
