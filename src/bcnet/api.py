"""The calls that people make: `search` and `baseline`, and their parts.

A run directory stays what its settings say. `evolve` and `retrain` do one stage of a run again; with other settings
that is another run, in a directory of its own, which takes over the finished stages that both share.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from bcnet.distributed import ProcessGroup, joined
from bcnet.errors import BCNetError, RecipeError, RunError
from bcnet.latency import multiples
from bcnet.machine.defaults import threads
from bcnet.machine.disk import free_bytes
from bcnet.progress import Reporter, Together, console_reporter
from bcnet.progress.callbacks import Callbacks
from bcnet.report import finish, reported
from bcnet.run.baselines import BASELINES
from bcnet.run.callables import OfWidths, user_callables, user_searcher
from bcnet.run.directory import check_usable, read_settings
from bcnet.run.effort import USUAL, EffortName, check_effort, says_how, settings_of
from bcnet.run.options import Arguments, BaselineArguments, EvolveOptions, Options, RunOptions
from bcnet.run.presets import PresetName, with_preset
from bcnet.run.pretrained import Weights
from bcnet.run.recipes import check_request, recipes_for
from bcnet.run.settings import FROM_PRIOR, FinalFrom, Settings, limits_of, make_settings
from bcnet.run.widths import WidthsLike, resolve_widths
from bcnet.run.workload import (
    DataLike,
    ModelLike,
    Source,
    Workload,
    open_source,
    prepare,
    source_of_run,
    task_of,
    trace,
)
from bcnet.searchers import Metric, PerImage
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.stages.base import Stage
from bcnet.stages.calibration import check_model, latency_of
from bcnet.stages.estimate import Estimate, estimate
from bcnet.stages.final import TrainedNetwork
from bcnet.stages.plan import (
    ONE_NETWORK,
    TO_THE_PRIOR,
    TO_THE_WIDTHS,
    FoundWidths,
    SearchOutcome,
    TrainedSupernet,
    stages_of,
    to_one_network,
    to_the_end,
    to_the_prior,
    to_the_widths,
    with_original,
)
from bcnet.stages.reuse import others
from bcnet.stages.room import search_bytes, training_bytes
from bcnet.stages.running import check_seconds, planned, resolved_settings, run_stages
from bcnet.tasks import Classification, Loss, Task
from bcnet.train import CHECKPOINT_SECONDS, Recipe

_HOW_FOUND = ("baseline", "tune_steps", "finalist_steps", "tune_lr_share", "finalist_epochs")
"""Settings that given widths make no use of."""


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
    callbacks: Callbacks | None = None,
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
        preset: "paper" for the search as the paper has it (docs/differences.md).
        score: how widths are judged, higher being better: "accuracy", "loss", or a function of logits and labels that
            gives a value for each image `(batch,)`, averaged over validation images and both sides. By default the
            accuracy, and with an effort the loss, which few trainings are told apart by better.
        score_of_widths: a function of widths alone that gives a number, in place of `score`.
        tags: names for `loss` and `score` where the functions have none that a resumed run could know them by.
        callbacks: functions of your own that hear of steps, evaluations and stages.
        progress: show progress bars in a notebook or terminal, and lines elsewhere.
        reporter: hears about progress.
        checkpoint_seconds: the most training that is lost when the run is killed; longer where saving takes so long
            that it would cost more than 2 % of the time.
        take_from: other runs of the model on the data; what they have finished and share with this one is taken over,
            never done again. All runs of one seed and recipe share the original, those of one budget Uniform as well.
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
    heard = [r for r in (reporter, callbacks, console_reporter() if progress else None) if r is not None]
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
    return finish(outcome, model)


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
    check_seconds(checkpoint_seconds)
    with joined(options.get("device")) as world:
        workload, resolved = resolve(model, data, budget=budget, run_dir=run_dir, world=world, **options)
        if not resolved.scores_candidates:
            raise RecipeError(
                f"widths are found by scoring candidates, which the baseline {resolved.baseline!r} does not: call "
                "bcnet.baseline"
            )
        outcome = run_stages(
            to_the_widths,
            workload,
            resolved,
            Path(run_dir),
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            until=with_original(TO_THE_WIDTHS, resolved),
            take_from=others(take_from, Path(run_dir)),
        )
    return reported(outcome)


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
        **settings: `searcher`, `population`, `generations`, `parents`, `score`, `early_stop`, `score_batch_size`,
            `rescored`, `tune_steps`, `finalist_steps` or `tune_lr_share`.

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
    if changes.get("early_stop", stored.early_stop) != stored.early_stop:
        changes.setdefault("score_batch_size", None)  # chosen anew: races want smaller batches
    with joined(stored.device) as world:
        request = _changed(stored, changes)
        _check_target(origin, target, stored, request)
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
        take_from, reporter, checkpoint_seconds: as in `search`; from `run` is taken over in any case.
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
            source = _fresh_source(model, data, widths, run_dir, image_size, seed, task)
            request = _request(source, asked, changes or {}, image_size, started)
        else:
            if settings or image_size is not None:
                given = ", ".join((*settings, *(("image_size",) if image_size is not None else ())))
                raise RunError(f"what a run is of stays as it is; got {given}: leave it out, or leave out the run")
            assert stored is not None
            asked = check_request(recipe or stored.final, changes or {}, {"processes": stored.processes})
            source = source_of_run(Path(run), stored, model, data, task=task)
            request = _with_final(stored, source, asked if recipe else None, changes or {}, seed)
        if final_from is not None:
            request = _changed(request, {"final_from": final_from})
        if widths is not None:
            request = _with_widths(request, source, widths)
        _check_task(source, request)
        _check_final_from(request)
        target = Path(run_dir or run or "")
        if stored is not None and run is not None:
            _check_target(Path(run), target, stored, request)
        resolved = resolved_settings(request, source, target, world)
        outcome = run_stages(
            to_the_end,
            prepare(source, resolved),
            resolved,
            target,
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            take_from=others((*(() if run is None else (run,)), *take_from), target),
        )
    return finish(outcome, source.model_name if model is None else model)


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

    Where the recipe distils, the original is trained first, or taken over from a run in `take_from`. `retrain` compares
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
        source = _fresh_source(model, data, widths, run_dir, image_size, seed, task)
        request = _with_widths(_request(source, asked, changes or {}, image_size, started), source, widths)
        _check_task(source, request)
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
      learns from, the best on the validation images then trained by the full schedule on all training images.
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
    options.setdefault("final_from", _usual_start(options.get("supernet_width", 1.0), options.get("pretrained")))
    return search(model, data, budget=budget, run_dir=run_dir, **fixed, **options)


@dataclass(frozen=True)
class Preview:
    """Settings as they would be stored, the width space, and what the run would take.

    `estimate` is None where the run is finished. `disk` is what the run holds on disk at most, `disk_free` what there
    is, in bytes.
    """

    settings: Settings
    space: WidthSpace
    estimate: Estimate | None
    disk: int
    disk_free: int


def preview(model: Any, data: Any, *, run_dir: str | Path, **arguments: Any) -> Preview:
    """What `search` would do with the same arguments. Nothing is written.

    Raises:
        BCNetError: something that `search` would refuse.
    """
    path = Path(run_dir)
    with joined(arguments.get("device")) as world:
        workload, settings = resolve(model, data, run_dir=path, world=world, **arguments)
    if not all(measure.countable for measure in workload.budget.limits):
        # What widths a latency admits is known once networks are timed: what the widest need is the most.
        workload = dataclasses.replace(workload, budget=Budget(macs=1.0))
    there = {file.name for file in path.iterdir()} if path.exists() else set()
    with threads(settings.threads):
        expected = estimate(settings, workload, planned(stages_of(settings), settings, workload, there))
    return Preview(settings, workload.space, expected, _disk(settings, workload), free_bytes(path))


def _disk(settings: Settings, workload: Workload) -> int:
    groups = len(workload.space.groups)
    steps = len(workload.training) * settings.supernet.epochs
    trainings = (
        training_bytes(workload.model, settings.supernet, 2 * steps, groups),
        training_bytes(workload.model, settings.final),
    )
    return sum(trainings) + search_bytes(settings.population * settings.generations, groups)


def resolve(
    model: ModelLike,
    data: DataLike,
    *,
    budget: Budget,
    run_dir: str | Path,
    recipe: Recipe | str | None = None,
    supernet_epochs: int | None = None,
    changes: Mapping[str, Any] | None = None,
    image_size: int | None = None,
    world: ProcessGroup | None = None,
    pretrained: Weights | None = None,
    loss: Loss | None = None,
    effort: EffortName | None = None,
    preset: PresetName | None = None,
    score: Metric | PerImage | None = None,
    score_of_widths: OfWidths | None = None,
    tags: Mapping[str, str] | None = None,
    task: Task | str | None = None,
    stages: Sequence[Stage] = (),
    **settings: Unpack[Options],
) -> tuple[Workload, Settings]:
    """What a run with these arguments of `search` works on, and all its settings; nothing is written.

    `world` are the processes that will share the run, by default this one alone.

    Raises:
        BCNetError: something that `search` would refuse.
    """
    limits = limits_of(budget)
    path = Path(run_dir)
    world = world or ProcessGroup()
    world.on_rank_zero(lambda: check_usable(path))
    wanted = dict(changes or {}) | ({} if supernet_epochs is None else {"supernet.epochs": supernet_epochs})
    if effort is None:
        told = says_how({**settings, "preset": preset, "score_of_widths": score_of_widths}, wanted)
        effort = None if told or _has_supernet(path) else USUAL
    usual: Metric = "accuracy" if effort is None or score_of_widths is not None else "loss"
    chosen: dict[str, Any] = {**settings} if preset is None else with_preset(preset, settings)
    own, named_score = user_callables(loss, usual if score is None else score, score_of_widths, tags or {})
    searcher, searcher_name = user_searcher(settings.get("searcher", "evolution"))
    own = dataclasses.replace(own, searcher=searcher)
    if effort is not None:
        check_effort(effort, {**settings, "supernet_epochs": supernet_epochs, "preset": preset}, wanted)
    named: dict[str, Any] = {"score": named_score, "processes": world.size, **chosen}
    if task is not None and loss is not None:
        raise RecipeError("a task has its own loss; got loss= beside it: leave one of them out")
    aim = Classification(own.loss) if task is None else task_of(task)
    named["task"] = aim.description
    named |= {"searcher": searcher_name, "own_stages": tuple(stage.name for stage in stages)}
    recipe = check_request(recipe, wanted, named)
    seed = settings.get("seed", 0)
    source = open_source(model, data, image_size=image_size, seed=seed, pretrained=pretrained, own=own, task=aim)
    supernet, final = recipes_for(source, recipe, wanted)
    request = make_settings(
        model=source.model_name,
        data=source.data_name,
        image_size=image_size,
        limits=limits,
        supernet=supernet,
        final=final,
        own_score=own.score_name,
        loss=own.loss_name,
        pretrained=source.pretrained,
        **named,
    )
    if request.multiple_of == "auto":
        request = _with_multiples(request, source, budget, path)
    if effort is not None:
        space = trace(source.model, source.example(), request)
        seen = 1 - request.validation_fraction - request.fresh_fraction
        if "final_from" not in settings:
            request = _changed(request, {"final_from": _usual_start(request.supernet_width, request.pretrained)})
        from_scratch = request.final_from == "scratch"
        decided = settings_of(effort, space, budget, final, seen, from_scratch=from_scratch)
        if own.of_widths is not None:  # nothing is trained, for longer neither
            decided["finalist_epochs"] = None
        request = _changed(request, decided)
    _check_start(source, request)
    resolved = resolved_settings(request, source, path, world, largest_activation=source.largest_activation())
    return prepare(source, resolved, budget), resolved


def _has_supernet(path: Path) -> bool:
    """Whether there is a run in `path` that searches on a supernet."""
    return (path / "settings.json").exists() and read_settings(path).has_supernet


def _usual_start(supernet_width: float, pretrained: object | None) -> FinalFrom:
    """What networks of an effort or a baseline start from: trained weights, unless they may be wider than these."""
    if supernet_width > 1:
        return "scratch"
    return "original" if pretrained is None else "pretrained"


def _check_task(source: Source, settings: Settings) -> None:
    """Raise RecipeError where a recipe does not suit the task."""
    if source.task.soft_labels:
        return
    if settings.strategy == "sandwich" and settings.has_supernet:
        raise RecipeError(
            f"the strategy sandwich distils from the full width, which is for classification; got the task "
            f"{source.task.name!r}: take strategy unilateral"
        )
    for recipe in (settings.supernet, settings.final):
        if recipe.label_smoothing or recipe.distillation is not None:
            raise RecipeError(
                f"label smoothing and distillation are for classification; got the task {source.task.name!r}: "
                "leave them out of the recipe (--set label_smoothing=0 --set distillation=null)"
            )


def _check_start(source: Source, settings: Settings) -> None:
    """Raise RecipeError where a recipe does not suit the task, or networks are to start from weights there are not."""
    _check_task(source, settings)
    if settings.supernet_width > 1 and (settings.pretrained or settings.final_from in ("pretrained", "original")):
        raise RecipeError(
            f"networks that may be wider than the original start from fresh weights; got supernet_width "
            f"{settings.supernet_width:g} with trained ones: leave one of them out"
        )
    if settings.has_trials and settings.baseline is None and settings.searcher in FROM_PRIOR:
        raise RecipeError(
            f"the searcher {settings.searcher} starts from a prior that a supernet leaves, of which the scorer "
            "trainings has none: take searcher model, greedy or random"
        )
    what = "a score of widths alone" if source.own.of_widths is not None else _way_of(settings)
    tuned = [name for name in ("tune_steps", "finalist_steps") if getattr(settings, name)]
    if tuned and (source.own.of_widths is not None or not settings.has_supernet):
        raise RecipeError(
            f"{tuned[0]} fine-tunes candidates from the supernet's weights before they are scored, of which {what} "
            f"makes no use; got {getattr(settings, tuned[0])}: leave it out"
        )
    if settings.finalist_epochs is not None and (source.own.of_widths is not None or not settings.has_trials):
        raise RecipeError(
            f"finalist_epochs trains the best of candidates for longer that are trained by themselves, of which {what} "
            f"makes no use; got {settings.finalist_epochs}: leave it out, or give scorer trainings"
        )
    if settings.tune_lr_share < 1 and not tuned:
        raise RecipeError(
            f"tune_lr_share is of candidates that are fine-tuned; got {settings.tune_lr_share:g} and none that are: "
            "give tune_steps or finalist_steps as well, or leave it out"
        )
    _check_final_from(settings)
    if settings.final_from == "pretrained" and source.pretrained is None and source.factory is not None:
        raise RecipeError(
            'final_from="pretrained" needs weights to start from; there are none: give pretrained= (--pretrained), or '
            "the model as a module with its weights"
        )


def _way_of(settings: Settings) -> str:
    """How a run finds its widths, for people."""
    if settings.widths is not None:
        return "a run of given widths"
    if settings.baseline:
        return f"the baseline {settings.baseline!r}"
    return "a search on a supernet" if settings.has_supernet else "the scorer 'trainings'"


def _check_final_from(settings: Settings) -> None:
    if settings.final_from == "supernet" and not settings.has_supernet:
        raise RecipeError(
            f'final_from="supernet" needs a supernet, which {_way_of(settings)} has none of: take "scratch"'
        )


def _with_multiples(request: Settings, source: Source, budget: Budget, path: Path) -> Settings:
    """The settings with the multiples that pay by the latency model of the budget, or those of the run in `path`."""
    stored = read_settings(path).multiple_of if (path / "settings.json").exists() else None
    if isinstance(stored, dict):
        return _changed(request, {"multiple_of": stored})
    asked = latency_of(budget)
    if asked is None or asked.model is None:
        return request  # which no space can be traced with, as the message says
    space = trace(source.model, source.example(), _changed(request, {"multiple_of": 1}))
    check_model(asked.model, space)
    return _changed(request, {"multiple_of": multiples(space, asked.model)})


def _changed(stored: Settings, changes: Mapping[str, Any]) -> Settings:
    values = {name: getattr(stored, name) for name in Settings.model_fields}
    return make_settings(**(values | dict(changes)))


def _check_target(origin: Path, target: Path, stored: Settings, request: Settings) -> None:
    """Other settings need another directory, and one that can take a run."""
    if target.resolve() != origin.resolve():
        check_usable(target)
        return
    difference = request.first_difference(stored)
    if difference is not None:
        key, here, there = difference
        raise RunError(
            f"run {origin} is one of {key} {there!r} and stays so; {here!r} makes another run: give it a directory of "
            "its own (--out), which takes over what both share"
        )


def _fresh_source(
    model: ModelLike | None,
    data: DataLike | None,
    widths: WidthsLike | None,
    run_dir: str | Path | None,
    image_size: int | None,
    seed: int | None,
    task: Task | str | None,
) -> Source:
    wanted = {"model": model, "data": data, "widths": widths, "out": run_dir}
    missing = [f"--{name}" for name, value in wanted.items() if value is None]
    if model is None or data is None or run_dir is None or missing:
        raise BCNetError(
            f"retraining without a run needs --model, --data, --widths and --out; missing: {', '.join(missing)}"
        )
    check_usable(Path(run_dir))
    return open_source(model, data, image_size=image_size, seed=seed or 0, task=task_of(task))


def _request(
    source: Source,
    recipe: Recipe | None,
    changes: Mapping[str, Any],
    image_size: int | None,
    settings: Mapping[str, Any],
) -> Settings:
    supernet, final = recipes_for(source, recipe, changes)
    fixed = {"model": source.model_name, "data": source.data_name, "image_size": image_size, "limits": {"macs": 1.0}}
    return make_settings(**fixed, task=source.task.description, supernet=supernet, final=final, **settings)


def _with_final(
    stored: Settings, source: Source, recipe: Recipe | None, changes: Mapping[str, Any], seed: int | None
) -> Settings:
    base = stored.final if recipe is None else recipes_for(source, recipe, {})[1]
    values: dict[str, Any] = {"final": base.changed(changes) if changes else base}
    if seed is not None:
        values["final_seed"] = seed
    return _changed(stored, values)


def _with_widths(request: Settings, source: Source, widths: WidthsLike) -> Settings:
    """The settings for given widths; their own cost is the budget that the Uniform network keeps to.

    A budget admits the narrowest choices of a space: widths that are narrower still are compared with that.
    """
    space = trace(source.model, source.example(), request)
    found: Widths = resolve_widths(widths, space, source.model, request.model)
    how_found = {name: Settings.model_fields[name].default for name in _HOW_FOUND}
    limit = {"limits": {"macs": max(space.cost(w).macs for w in (found, space.narrowest))}}
    return _changed(request, {"widths": found, **limit, **how_found})
