"""Arguments of the calls resolved: what a run works on, and all its settings, checked against each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from bcnet.distributed import ProcessGroup
from bcnet.errors import BCNetError, RecipeError, RunError
from bcnet.latency import multiples
from bcnet.run.callables import user_callables, user_searcher
from bcnet.run.directory import check_usable, read_settings
from bcnet.run.effort import USUAL, EffortName, check_effort, says_how, settings_of
from bcnet.run.options import Arguments, Options
from bcnet.run.presets import with_preset
from bcnet.run.pretrained import Weights
from bcnet.run.recipes import check_request, recipes_for
from bcnet.run.settings import FROM_PRIOR, FinalFrom, Settings, limits_of, make_settings
from bcnet.run.widths import WidthsLike, resolve_widths
from bcnet.run.workload import DataLike, ModelLike, Source, Workload, open_source, prepare, task_of, trace
from bcnet.searchers import Metric
from bcnet.space import Budget, Widths
from bcnet.stages.base import Stage
from bcnet.stages.calibration import check_model, latency_of
from bcnet.stages.running import resolved_settings
from bcnet.tasks import Classification, Task
from bcnet.train import Recipe

_FROM_TRAINED = (
    "The model comes with trained weights: all networks start from them and are fine-tuned; final_from='scratch' "
    "(--final-from scratch) trains them anew."
)
_NOT_FROM_TRAINED = (
    "The model comes with trained weights. Final networks do not start from them (final_from={0!r}); "
    "final_from='pretrained' (--final-from pretrained) fine-tunes them."
)
_TOO_NARROW = "The model comes with trained weights, which a space wider than the model has no use for."
_NO_SETTINGS = Arguments.__annotations__.keys() - Options.__annotations__.keys()
"""Arguments of `search` that are no settings by themselves."""
_HOW_FOUND = ("baseline", "random_continued", "finalist_epochs")
"""Settings that given widths make no use of."""


def resolve(
    model: ModelLike,
    data: DataLike,
    *,
    budget: Budget,
    run_dir: str | Path,
    world: ProcessGroup | None = None,
    stages: Sequence[Stage] = (),
    **arguments: Unpack[Arguments],
) -> tuple[Workload, Settings]:
    """What a run with these arguments of `search` works on, and all its settings; nothing is written.

    `world` are the processes that will share the run, by default this one alone.

    Raises:
        BCNetError: something that `search` would refuse.
    """
    settings: dict[str, Any] = {name: value for name, value in arguments.items() if name not in _NO_SETTINGS}
    asked_recipe = arguments.get("recipe")
    supernet_epochs = arguments.get("supernet_epochs")
    image_size = arguments.get("image_size")
    pretrained = arguments.get("pretrained")
    loss = arguments.get("loss")
    effort = arguments.get("effort")
    preset = arguments.get("preset")
    score = arguments.get("score")
    score_of_widths = arguments.get("score_of_widths")
    task = arguments.get("task")
    limits = limits_of(budget)
    path = Path(run_dir)
    world = world or ProcessGroup()
    world.on_rank_zero(lambda: check_usable(path))
    wanted = dict(arguments.get("changes") or {})
    if supernet_epochs is not None:
        wanted["supernet.epochs"] = supernet_epochs
    if effort is None:
        told = says_how({**settings, "preset": preset, "score_of_widths": score_of_widths}, wanted)
        effort = None if told or _has_supernet(path) else USUAL
    usual: Metric = "accuracy" if effort is None or score_of_widths is not None else "loss"
    chosen: dict[str, Any] = {**settings} if preset is None else with_preset(preset, settings)
    tags = arguments.get("tags") or {}
    own, named_score = user_callables(loss, usual if score is None else score, score_of_widths, tags)
    searcher, searcher_name = user_searcher(settings.get("searcher", "evolution"))
    own = dataclasses.replace(own, searcher=searcher)
    if effort is not None:
        check_effort(effort, {**settings, "supernet_epochs": supernet_epochs, "preset": preset}, wanted)
    chosen = {name: value for name, value in chosen.items() if name != "final_from" or value is not None}
    named: dict[str, Any] = {"score": named_score, "processes": world.size, **chosen}
    if task is not None and loss is not None:
        raise RecipeError("a task has its own loss; got loss= beside it: leave one of them out")
    aim = Classification(own.loss) if task is None else task_of(task)
    named["task"] = aim.description
    named |= {"searcher": searcher_name, "own_stages": tuple(stage.name for stage in stages)}
    recipe = check_request(asked_recipe, wanted, named)
    source = open_source(
        model,
        data,
        image_size=image_size,
        seed=settings.get("seed", 0),
        pretrained=pretrained,
        own=own,
        task=aim,
        own_weights=settings.get("final_from") == "pretrained",
    )
    if pretrained is None and settings.get("supernet_width", 1.0) > 1:
        source = _without_weights(source)
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
    request, source = _with_start(request, source, settings, effort, pretrained)
    if effort is not None:
        request = _with_effort(effort, request, source, budget)
    _check_start(source, request)
    resolved = resolved_settings(request, source, path, world, largest_activation=source.largest_activation())
    return prepare(source, resolved, budget), resolved


def _with_start(
    request: Settings, source: Source, given: Mapping[str, Any], effort: EffortName | None, pretrained: Weights | None
) -> tuple[Settings, Source]:
    """Return the settings with what networks start from, and the source with a note on weights that came by themselves.

    A `final_from` of None, as baselines have it, is the usual start; a search on a supernet that leaves it out starts
    from scratch.
    """
    if given.get("final_from") is None and (effort is not None or "final_from" in given):
        request = changed(request, {"final_from": usual_start(request.supernet_width, request.pretrained)})
    if pretrained is not None or source.pretrained is None:
        return request, source
    start = request.final_from
    note = _FROM_TRAINED if start == "pretrained" else _NOT_FROM_TRAINED.format(start)
    return request, dataclasses.replace(source, notes=(*source.notes, note))


def _without_weights(source: Source) -> Source:
    """Return the source as one without trained weights, which a wider network cannot start from."""
    if source.pretrained is None:
        return source
    return dataclasses.replace(source, pretrained=None, notes=(*source.notes, _TOO_NARROW))


def _with_effort(effort: EffortName, request: Settings, source: Source, budget: Budget) -> Settings:
    """The settings with what an effort comes to."""
    space = trace(source.model, source.example(), request)
    seen = 1 - request.validation_fraction - request.fresh_fraction
    from_scratch = request.final_from == "scratch"
    decided = settings_of(effort, space, budget, request.final, seen, from_scratch=from_scratch)
    if source.own.of_widths is not None:  # nothing is trained, for longer neither
        decided["finalist_epochs"] = None
    return changed(request, decided)


def _has_supernet(path: Path) -> bool:
    """Whether there is a run in `path` that searches on a supernet."""
    return (path / "settings.json").exists() and read_settings(path).has_supernet


def usual_start(supernet_width: float, pretrained: object | None) -> FinalFrom:
    """What networks of an effort or a baseline start from: trained weights, unless they may be wider than these."""
    if supernet_width > 1:
        return "scratch"
    return "original" if pretrained is None else "pretrained"


def check_task(source: Source, settings: Settings) -> None:
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
    check_task(source, settings)
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
    if settings.finalist_epochs is not None and (source.own.of_widths is not None or not settings.has_trials):
        raise RecipeError(
            f"finalist_epochs trains the best of candidates for longer that are trained by themselves, of which {what} "
            f"makes no use; got {settings.finalist_epochs}: leave it out, or give scorer trainings"
        )
    check_final_from(settings)
    if settings.final_from == "pretrained" and source.pretrained is None:
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


def check_final_from(settings: Settings) -> None:
    """Raise RecipeError where networks are to start from a supernet that there is not."""
    if settings.final_from == "supernet" and not settings.has_supernet:
        raise RecipeError(
            f'final_from="supernet" needs a supernet, which {_way_of(settings)} has none of: take "scratch"'
        )


def _with_multiples(request: Settings, source: Source, budget: Budget, path: Path) -> Settings:
    """The settings with the multiples that pay by the latency model of the budget, or those of the run in `path`."""
    stored = read_settings(path).multiple_of if (path / "settings.json").exists() else None
    if isinstance(stored, dict):
        return changed(request, {"multiple_of": stored})
    asked = latency_of(budget)
    if asked is None or asked.model is None:
        return request  # which no space can be traced with, as the message says
    space = trace(source.model, source.example(), changed(request, {"multiple_of": 1}))
    check_model(asked.model, space)
    return changed(request, {"multiple_of": multiples(space, asked.model)})


def changed(stored: Settings, changes: Mapping[str, Any]) -> Settings:
    """The settings with other values, checked."""
    values = {name: getattr(stored, name) for name in Settings.model_fields}
    return make_settings(**(values | dict(changes)))


def check_target(origin: Path, target: Path, stored: Settings, request: Settings) -> None:
    """Other settings need another directory, and one that can take a run."""
    if target.resolve() != origin.resolve():
        check_usable(target)
        return
    difference = request.first_difference(stored)
    if difference is not None:
        key, here, there = difference
        raise RunError(
            f"run {origin} is one of {key} {there!r} and stays so; {here!r} makes another run: give it a directory of "
            "its own (--out), which reuses what both share"
        )


def fresh_source(
    model: ModelLike | None,
    data: DataLike | None,
    widths: WidthsLike | None,
    run_dir: str | Path | None,
    image_size: int | None,
    seed: int | None,
    task: Task | str | None,
) -> Source:
    """Model and data of a training without a run; BCNetError where one of the options that it needs is missing."""
    wanted = {"model": model, "data": data, "widths": widths, "out": run_dir}
    missing = [f"--{name}" for name, value in wanted.items() if value is None]
    if model is None or data is None or run_dir is None or missing:
        raise BCNetError(
            f"retraining without a run needs --model, --data, --widths and --out; missing: {', '.join(missing)}"
        )
    check_usable(Path(run_dir))
    return open_source(model, data, image_size=image_size, seed=seed or 0, task=task_of(task))


def request_of(
    source: Source,
    recipe: Recipe | None,
    changes: Mapping[str, Any],
    image_size: int | None,
    settings: Mapping[str, Any],
) -> Settings:
    """The settings of a training of given widths, before these are known."""
    supernet, final = recipes_for(source, recipe, changes)
    fixed = {"model": source.model_name, "data": source.data_name, "image_size": image_size, "limits": {"macs": 1.0}}
    return make_settings(**fixed, task=source.task.description, supernet=supernet, final=final, **settings)


def with_final(
    stored: Settings, source: Source, recipe: Recipe | None, changes: Mapping[str, Any], seed: int | None
) -> Settings:
    """The settings of a run with another recipe or seed for its final networks."""
    base = stored.final if recipe is None else recipes_for(source, recipe, {})[1]
    values: dict[str, Any] = {"final": base.changed(changes) if changes else base}
    if seed is not None:
        values["final_seed"] = seed
    return changed(stored, values)


def with_widths(request: Settings, source: Source, widths: WidthsLike) -> Settings:
    """The settings for given widths; their own cost is the budget that the Uniform network keeps to.

    A budget admits the narrowest choices of a space: widths that are narrower still are compared with that.
    """
    space = trace(source.model, source.example(), request)
    found: Widths = resolve_widths(widths, space, source.model, request.model)
    how_found = {name: Settings.model_fields[name].default for name in _HOW_FOUND}
    limit = {"limits": {"macs": max(space.cost(w).macs for w in (found, space.narrowest))}}
    return changed(request, {"widths": found, **limit, **how_found})
