"""The calls that people make: `search` and `baseline`, and their parts.

A run directory stays what its settings say. `evolve` and `retrain` do one stage of a run again; with other settings
that is another run, in a directory of its own, which reuses the finished stages that both share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Unpack

from bcnet.api.outcomes import (
    ONE_NETWORK,
    TO_THE_PRIOR,
    TO_THE_WIDTHS,
    FoundWidths,
    SearchOutcome,
    TrainedSupernet,
    to_one_network,
    to_the_end,
    to_the_found_network,
    to_the_prior,
    to_the_widths,
    with_original,
)
from bcnet.api.resolution import (
    changed,
    check_final_from,
    check_target,
    check_task,
    fresh_source,
    request_of,
    resolve,
    with_final,
    with_widths,
)
from bcnet.distributed import joined
from bcnet.errors import RecipeError, RunError
from bcnet.progress import Reporter, Together, console_reporter
from bcnet.report import finish, reported
from bcnet.run.baselines import BASELINES
from bcnet.run.callables import OfWidths, user_searcher
from bcnet.run.directory import read_settings
from bcnet.run.effort import EffortName
from bcnet.run.options import Arguments, BaselineArguments, EvolveOptions, Options, RunOptions
from bcnet.run.presets import PresetName
from bcnet.run.pretrained import Weights
from bcnet.run.recipes import check_request
from bcnet.run.settings import limits_of
from bcnet.run.widths import WidthsLike
from bcnet.run.workload import DataLike, ModelLike, prepare, source_of_run
from bcnet.searchers import Metric, PerImage
from bcnet.space import Budget
from bcnet.stages.base import Context, Stage
from bcnet.stages.final import TrainedNetwork
from bcnet.stages.reuse import others
from bcnet.stages.running import check_seconds, resolved_settings, run_stages
from bcnet.tasks import Loss, Task
from bcnet.train import CHECKPOINT_SECONDS, Recipe

_T = TypeVar("_T")


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
    effort: EffortName | None = None,
    preset: PresetName | None = None,
    score: Metric | PerImage | None = None,
    score_of_widths: OfWidths | None = None,
    tags: Mapping[str, str] | None = None,
    progress: bool = False,
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    take_from: Sequence[str | Path] = (),
    task: Task | str | None = None,
    stages: Sequence[Stage] = (),
    **settings: Unpack[Options],
) -> SearchOutcome:
    """Find, train and compare the best widths of `model` under `budget`.

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
        effort: what to spend on the search: "small", "medium" or "large", about 1, 3 or 10 trainings of the original.
            Candidates are then short trainings that a model of their scores proposes (`bcnet.run.effort`), and there
            is no supernet. They and the final networks start from the trained original, or from `pretrained`, unless
            `final_from` says otherwise. It is "medium" where nothing else says how to search (`SAYS_HOW`); with
            `scorer="supernet"` the search is on a supernet.
        preset: "paper" for the search, or the baseline random, as the paper has it (docs/differences.md).
        score: how widths are judged, higher being better: "accuracy", "loss", or a function of logits and labels that
            gives a value for each image `(batch,)`, averaged over validation images and both sides. By default the
            accuracy, and with an effort the loss, which few trainings are told apart by better.
        score_of_widths: a function of widths alone that gives a number, in place of `score`.
        tags: names for `loss` and `score` where the functions have none that a resumed run could know them by.
        progress: show progress bars in a notebook or terminal, and lines elsewhere.
        reporter: hears about progress.
        checkpoint_seconds: the most training that is lost when the run is killed; longer where saving takes so long
            that it would cost more than 2 % of the time.
        take_from: other runs of the model on the data; what they have finished and share with this one is reused,
            never done again. All runs of one seed and recipe share the original, those whose budgets give the same
            Uniform widths that network as well.
        task: what the network is trained for, where that is not classification: a `bcnet.Task`, or its name with its
            settings ("segmentation:classes=21").
        stages: stages of your own (`bcnet.Stage`), which come where they need others, else at the end.
        **settings: any other field of `Settings`: seed, population, generations, num_choices, threads, ... With
            `final_from="supernet"` or `"pretrained"` all three final networks are fine-tuned and not trained from
            scratch: from the first channels of the supernet, or from the most important ones of the weights they were
            given. With `"original"` Uniform and the searched network are, from those of the original once it is
            trained, and so are candidates that are scored by trainings.

    Raises:
        BCNetError: with one message that says what is wrong, what was got, and what to do. Nothing is written before
            model, data, space and budget are known to fit.

    Example: `search(resnet, "cifar10", budget=Budget(macs=0.5), run_dir="runs/half").network`
    """
    check_seconds(checkpoint_seconds)
    heard = [r for r in (reporter, console_reporter() if progress else None) if r is not None]
    with joined(settings.get("device")) as world:
        workload, resolved = resolve(
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
            effort=effort,
            preset=preset,
            score=score,
            score_of_widths=score_of_widths,
            tags=tags,
            task=task,
            stages=stages,
            **settings,
        )
        outcome = run_stages(
            to_the_end,
            workload,
            resolved,
            Path(run_dir),
            world,
            reporter=Together(*heard),
            checkpoint_seconds=checkpoint_seconds,
            take_from=others(take_from, Path(run_dir)),
            own=stages,
        )
    return finish(outcome, model, workload.space)


def train_supernet(
    model: ModelLike,
    data: DataLike,
    *,
    run_dir: str | Path,
    budget: Budget | None = None,
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **options: Unpack[Arguments],
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
        on_one: Arguments = {"scorer": "supernet", **options}
        workload, resolved = resolve(model, data, budget=wanted, run_dir=run_dir, world=world, **on_one)
        outcome = run_stages(
            to_the_prior,
            workload,
            resolved,
            Path(run_dir),
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            until=TO_THE_PRIOR,
        )
    return reported(outcome)


def find_widths(
    model: ModelLike,
    data: DataLike,
    *,
    budget: Budget,
    run_dir: str | Path,
    take_from: Sequence[str | Path] = (),
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **options: Unpack[Arguments],
) -> FoundWidths:
    """`search` up to the widths: no final network is trained. `search` with the same arguments goes on with it.

    Args:
        model, data, budget, run_dir, take_from, reporter, checkpoint_seconds: as in `search`.
        **options: the other arguments of `search`; `baseline="random"` finds the best of some random networks.

    Raises:
        RecipeError: a baseline that scores no candidates.
        BCNetError: as `search`.

    Example: `find_widths("vgg19", "cifar10", budget=Budget(macs=0.3), run_dir="runs/vgg").widths`
    """
    found = _found(
        to_the_widths,
        TO_THE_WIDTHS,
        model,
        data,
        budget,
        run_dir,
        take_from=take_from,
        reporter=reporter,
        checkpoint_seconds=checkpoint_seconds,
        options=options,
    )
    return reported(found)


def find_network(
    model: ModelLike,
    data: DataLike,
    *,
    budget: Budget,
    run_dir: str | Path,
    take_from: Sequence[str | Path] = (),
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **options: Unpack[Arguments],
) -> TrainedNetwork:
    """`search` for the found network alone: it is trained and tested, with no other network to compare with.

    The original is trained where the network starts from it or learns from it. `search` with the same arguments goes
    on with the others.

    Args:
        model, data, budget, run_dir, take_from, reporter, checkpoint_seconds, **options: as in `find_widths`.

    Raises:
        RecipeError: a baseline that scores no candidates.
        BCNetError: as `search`.

    Example: `find_network("vgg19", "cifar10", budget=Budget(macs=0.3), run_dir="runs/vgg").test.figures["top1"]`
    """
    return _found(
        to_the_found_network,
        (*TO_THE_WIDTHS, *ONE_NETWORK),
        model,
        data,
        budget,
        run_dir,
        take_from=take_from,
        reporter=reporter,
        checkpoint_seconds=checkpoint_seconds,
        options=options,
    )


def _found(
    outcome: Callable[[Context], _T],
    until: tuple[str, ...],
    model: ModelLike,
    data: DataLike,
    budget: Budget,
    run_dir: str | Path,
    *,
    take_from: Sequence[str | Path],
    reporter: Reporter | None,
    checkpoint_seconds: float,
    options: Arguments,
) -> _T:
    """What `outcome` makes of a search and of no stages but those that `until` names."""
    check_seconds(checkpoint_seconds)
    with joined(options.get("device")) as world:
        workload, resolved = resolve(model, data, budget=budget, run_dir=run_dir, world=world, **options)
        if not resolved.scores_candidates:
            raise RecipeError(
                f"widths are found by scoring candidates, which the baseline {resolved.baseline!r} does not: call "
                "bcnet.baseline"
            )
        return run_stages(
            outcome,
            workload,
            resolved,
            Path(run_dir),
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            until=with_original(until, resolved),
            take_from=others(take_from, Path(run_dir)),
        )


def evolve(
    run: str | Path,
    *,
    run_dir: str | Path | None = None,
    budget: Budget | None = None,
    seed: int | None = None,
    model: ModelLike | None = None,
    data: DataLike | None = None,
    task: Task | str | None = None,
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **settings: Unpack[EvolveOptions],
) -> FoundWidths:
    """Search on the trained supernet of `run`: as its settings say, or with others in a run of their own.

    The supernet is not trained again; the prior is learnt again where the budget is another. `retrain` goes on with it.

    Args:
        run: a run directory, of `train_supernet` or `search`.
        run_dir: the directory of the new run; needed where a setting is another.
        budget: another limit.
        seed: of the search, where not the run's.
        model, data, task: as in `search`; needed where the run was given objects and not names, and where a name
            imports code.
        reporter, checkpoint_seconds: as in `search`.
        **settings: `searcher`, `population`, `generations`, `parents`, `score`, `score_batch_size` or
            `rescored`.

    Raises:
        RunError: no such run, one without a trained supernet, or other settings without a `run_dir`.
        BCNetError: as `search`.

    Example: `evolve("runs/vgg", budget=Budget(macs=0.3), run_dir="runs/vgg-0.3").widths`
    """
    check_seconds(checkpoint_seconds)
    changes: dict[str, Any] = dict(settings)
    if budget is not None:
        changes["limits"] = limits_of(budget)
    if seed is not None:
        changes["search_seed"] = seed
    searcher = None
    if "searcher" in changes:
        searcher, changes["searcher"] = user_searcher(changes["searcher"])
    origin = Path(run)
    stored = read_settings(origin)
    target = Path(run_dir or run)
    with joined(stored.device) as world:
        request = changed(stored, changes)
        check_target(origin, target, stored, request)
        if not stored.has_supernet:
            raise RunError(
                f"evolve searches on a trained supernet, of which run {origin} has none: for another budget call bcnet "
                f"search with --take-from {origin}, which shares its original, or train a supernet first (bcnet train)"
            )
        if target != origin and not (origin / "supernet.safetensors").exists():
            raise RunError(f"a search needs a trained supernet; run {origin} has none: run `bcnet train` there first")
        source = source_of_run(origin, request, model, data, searcher, task)
        resolved = resolved_settings(request, source, target, world)
        outcome = run_stages(
            to_the_widths,
            prepare(source, resolved, budget),
            resolved,
            target,
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            until=TO_THE_WIDTHS,
            take_from=others([origin], target),
        )
    return reported(outcome)


def retrain(
    run: str | Path | None = None,
    *,
    run_dir: str | Path | None = None,
    widths: WidthsLike | None = None,
    seed: int | None = None,
    recipe: Recipe | str | None = None,
    changes: Mapping[str, Any] | None = None,
    model: ModelLike | None = None,
    data: DataLike | None = None,
    task: Task | str | None = None,
    image_size: int | None = None,
    final_from: str | None = None,
    take_from: Sequence[str | Path] = (),
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **settings: Unpack[RunOptions],
) -> SearchOutcome:
    """Train networks from scratch: those of `run`, again with other settings, or of given widths without any search.

    The original and the Uniform network of the same cost are trained alike, to compare with.

    Args:
        run: a run directory; without, `model`, `data`, `widths` and `run_dir` say what to train.
        run_dir: the directory of the new run; needed where a setting is another.
        widths: to train instead of those found, as `resolve_widths` takes them: a sequence, a mapping by group, a JSON
            file, a run directory, or "published:VARIANT".
        seed: of the training, where not the run's.
        recipe: how to train, where not as the run does.
        changes: other values in the recipe, for instance `{"epochs": 20}`.
        model, data, task, image_size: as in `search`; for a run only where it was given objects and not names.
        final_from: what all final networks start from, where not as the run's: "scratch", "supernet" or "original".
        take_from, reporter, checkpoint_seconds: as in `search`; `run` is reused in any case.
        **settings: without a run, other fields of `Settings`.

    Raises:
        RunError: no such run, or other settings without a `run_dir`.
        WidthError: widths that are none, or belong to another network.
        BCNetError: as `search`.

    Example: `retrain(model="vgg19", data="cifar10", widths="published:0.5x", run_dir="runs/published")`
    """
    check_seconds(checkpoint_seconds)
    stored = None if run is None else read_settings(Path(run))
    with joined(settings.get("device") if stored is None else stored.device) as world:
        if run is None:
            started = {**settings, "seed": seed or 0, "processes": world.size}
            asked = check_request(recipe, changes or {}, started)
            source = fresh_source(model, data, widths, run_dir, image_size, seed, task)
            request = request_of(source, asked, changes or {}, image_size, started)
        else:
            if settings or image_size is not None:
                given = ", ".join((*settings, *(("image_size",) if image_size is not None else ())))
                raise RunError(f"what a run is of stays as it is; got {given}: leave it out, or leave out the run")
            assert stored is not None
            asked = check_request(recipe or stored.final, changes or {}, {"processes": stored.processes})
            source = source_of_run(Path(run), stored, model, data, task=task)
            request = with_final(stored, source, asked if recipe else None, changes or {}, seed)
        if final_from is not None:
            request = changed(request, {"final_from": final_from})
        if widths is not None:
            request = with_widths(request, source, widths)
        check_task(source, request)
        check_final_from(request)
        target = Path(run_dir or run or "")
        if stored is not None and run is not None:
            check_target(Path(run), target, stored, request)
        resolved = resolved_settings(request, source, target, world)
        workload = prepare(source, resolved)
        outcome = run_stages(
            to_the_end,
            workload,
            resolved,
            target,
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            take_from=others((*(() if run is None else (run,)), *take_from), target),
        )
    return finish(outcome, source.model_name if model is None else model, workload.space)


def train_widths(
    model: ModelLike,
    data: DataLike,
    widths: WidthsLike,
    *,
    run_dir: str | Path,
    task: Task | str | None = None,
    seed: int = 0,
    recipe: Recipe | str | None = None,
    changes: Mapping[str, Any] | None = None,
    image_size: int | None = None,
    take_from: Sequence[str | Path] = (),
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **settings: Unpack[RunOptions],
) -> TrainedNetwork:
    """Train one network of the given widths from scratch, and test it, with no other network beside it.

    Where the recipe distils, the original is trained first, or reused from a run in `take_from`. `retrain` compares
    with the original and the Uniform network as well.

    Args:
        model, data, task, image_size, take_from, reporter, checkpoint_seconds: as in `search`.
        widths, recipe, changes: as in `retrain`.
        run_dir: a new folder, or that of the same training, which goes on.
        seed: of the training.
        **settings: other fields of `Settings`.

    Raises:
        WidthError: widths that are none, or belong to another network.
        BCNetError: as `search`.

    Example: `train_widths("vgg19", "cifar10", "published:0.5x", run_dir="runs/one").test.figures["top1"]`
    """
    check_seconds(checkpoint_seconds)
    with joined(settings.get("device")) as world:
        started = {**settings, "seed": seed, "processes": world.size}
        asked = check_request(recipe, changes or {}, started)
        source = fresh_source(model, data, widths, run_dir, image_size, seed, task)
        request = with_widths(request_of(source, asked, changes or {}, image_size, started), source, widths)
        check_task(source, request)
        target = Path(run_dir)
        resolved = resolved_settings(request, source, target, world)
        return run_stages(
            to_one_network,
            prepare(source, resolved),
            resolved,
            target,
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            until=with_original(ONE_NETWORK, resolved),
            take_from=others(take_from, target),
        )


def baseline(
    name: str,
    model: ModelLike,
    data: DataLike,
    *,
    budget: Budget,
    run_dir: str | Path,
    **options: Unpack[BaselineArguments],
) -> SearchOutcome:
    """Find widths of `model` under `budget` by another method than `search`, then train and compare them as it does.

    Recipe, seeds and order of the images of the final training are those of `search` with the same options, and so is
    what it starts from: the trained original, or `pretrained`, unless `final_from` says otherwise. So the networks
    compare at equal cost; no method sees test images. It resumes as `search` does.

    - "uniform": one ratio for all layers, as large as the budget allows.
    - "balanced": a formula that looks at neither data nor weights (`WidthSpace.balanced`, `balance_exponent`).
    - "random": `random_networks` (20) widths near the budget, each trained for `random_epochs` on what a supernet
      learns from, the best on the validation images then trained by the full schedule on all training images; with
      `random_continued`, or preset "paper", its own training goes on to the end of that schedule.
    - "autoslim": greedy slimming on a supernet of the sandwich rule with in-place distillation (Yu and Huang, 2019).
    - "unilateral": greedy slimming on a supernet of random left paths, which learn the labels.
    - "magnitude": what global magnitude pruning of the trained original leaves; `pip install 'bcnet[magnitude]'`.
    - "taylor": what global pruning by the first-order Taylor terms of the loss leaves of it; the same package.
    - "fastnas": what FastNAS of NVIDIA's Model Optimizer leaves of it; `pip install 'bcnet[fastnas]'`.

    Args:
        name: one of these.
        model, data, budget, run_dir: as in `search`.
        **options: the other arguments of `search`; with `take_from` the original is not trained again.

    Raises:
        RecipeError: no such baseline, or one whose package is not installed.
        ModelError: a pruner of others cut layers differently that must keep the same channels.
        BCNetError: as `search`.

    Example: `baseline("random", "resnet20", "cifar10", budget=Budget(macs=0.5), run_dir="runs/random")`
    """
    if name not in BASELINES:
        raise RecipeError(f"a baseline is one of {', '.join(BASELINES)}; got {name!r}")
    fixed = BASELINES[name].settings
    clash = sorted(set(fixed) & set(options))
    if clash:
        raise RecipeError(f"the baseline {name!r} decides {', '.join(clash)}: leave it out, or call bcnet.search")
    options.setdefault("final_from", None)
    return search(model, data, budget=budget, run_dir=run_dir, **fixed, **options)
