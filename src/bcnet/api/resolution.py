"""Resolve the arguments of `search` into a workload and checked settings."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn

from bcnet.distributed import ProcessGroup
from bcnet.errors import BudgetError, RecipeError
from bcnet.latency import multiples
from bcnet.methods import Given, Method, Pruned, SupernetMethod, Trainings, parse_method
from bcnet.methods.base import CustomMethod, Request, Start
from bcnet.pytree import call_model
from bcnet.run import names
from bcnet.run.callables import UserCallables, user_callables, user_searcher, with_teacher
from bcnet.run.directory import check_usable, read_settings, run_path, stored_settings
from bcnet.run.pretrained import Weights
from bcnet.run.recipes import TrainingLike, check_training, recipe_for
from bcnet.run.settings import RunOptions, Settings, SpaceSettings, limits_of, make_section, make_settings
from bcnet.run.subject import read_subject
from bcnet.run.widths import resolve_widths
from bcnet.run.workload import DataLike, ModelLike, Source, Workload, open_source, prepare, task_of, trace
from bcnet.space import Budget, WidthSpace
from bcnet.stages.base import Stage
from bcnet.stages.calibration import check_model, latency_of
from bcnet.stages.running import resolved_settings
from bcnet.tasks import Classification, Loss, Task
from bcnet.train import Distillation, Recipe

MethodLike = Method | str
_FROM_TRAINED = (
    "The model comes with trained weights: all networks start from them and are fine-tuned; start='scratch' (--start "
    "scratch) trains them anew."
)
_NOT_FROM_TRAINED = (
    "The model comes with trained weights. Final networks do not start from them (start={0!r}); start='pretrained' "
    "(--start pretrained) fine-tunes them."
)
_TOO_NARROW = "The model comes with trained weights, which a space wider than the model cannot use."


def resolve(
    model: ModelLike,
    data: DataLike,
    budget: Budget | None,
    run_dir: str | Path,
    *,
    method: MethodLike | None = None,
    training: TrainingLike | None = None,
    epochs: int | None = None,
    start: str | None = None,
    pretrained: Weights | None = None,
    space: SpaceSettings | Mapping[str, Any] | None = None,
    task: Task | str | None = None,
    loss: Loss | None = None,
    teacher: nn.Module | None = None,
    seed: int = 0,
    stages: Sequence[Stage] = (),
    options: RunOptions | Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    world: ProcessGroup | None = None,
) -> tuple[Workload, Settings]:
    """Return the workload and the complete settings for these arguments of `search`. Nothing is written.

    `world` is the group of processes that will share the run; by default, this process alone.

    Raises:
        BCNetError: an argument that `search` would refuse.
    """
    # Cheap mistakes are found first: data and model take seconds to minutes to open.
    path = run_path(run_dir)
    world = world or ProcessGroup()
    world.on_rank_zero(lambda: check_usable(path))
    requested = _method_of(method)
    _check_start_name(start)
    if budget is None and not isinstance(requested, Given):
        raise BudgetError("a search needs a budget; got none: give Budget(macs=0.5) for half the multiply-adds")
    requested.check()
    recipe, changes = check_training(training, epochs)
    requested, own = _with_functions(requested, loss, tags or {})
    own = with_teacher(own, teacher)
    if task is not None and loss is not None:
        raise RecipeError("a task comes with its own loss; got loss= as well: leave one of them out")
    aim = Classification(own.loss) if task is None else task_of(task)
    spaced = make_section(SpaceSettings, space)
    source = open_source(
        model,
        data,
        image_size=make_section(RunOptions, options).image_size,
        seed=seed,
        pretrained=pretrained,
        own=own,
        task=aim,
        own_weights=start == "pretrained",
    )
    # A run knows its data by content. If they have moved, the run keeps the name that it started with.
    source = _by_its_first_place(source, path)
    if pretrained is None and spaced.widen > 1:
        source = _without_weights(source)
    started = _start_of(requested, start, spaced, source)
    if pretrained is None:
        source = _with_note_on_weights(source, started)
    settings = make_settings(
        model=source.model_name,
        data=source.data_name,
        limits={} if budget is None else limits_of(budget),
        task=source.task.description,
        method=requested,
        training=_with_distillation(recipe_for(source, recipe, changes), own),
        start=started,
        seed=seed,
        loss=own.loss_name,
        teacher=own.teacher_name,
        custom_score=own.score_name,
        pretrained=source.pretrained,
        own_stages=tuple(stage.name for stage in stages if isinstance(stage, Stage)),
        space=spaced,
        options=make_section(RunOptions, options).model_copy(update={"processes": world.size}),
    )
    # Multiples that suit a device depend on the latency model, and the traced space on the multiples.
    settings = _with_multiples(settings, source, budget, path)
    # Tracing takes seconds and not every refusal needs it, so it happens at the first use, once.
    traced = cache(lambda: trace(source.model, source.example(), settings))
    settings, limit = _complete_method(settings, source, budget, traced)
    _check(source, settings)
    largest = source.largest_activation()
    resolved = resolved_settings(settings, source, path, world, largest_activation=largest)
    return prepare(source, resolved, limit, traced()), resolved


def _by_its_first_place(source: Source, path: Path) -> Source:
    """Return the source under the data name that the run in `path` was started with, if the data are the same."""
    if not (path / names.SETTINGS).exists() or not (path / names.SPACE).exists():
        return source
    before = read_settings(path).data
    kind = source.data_name.partition(":")[0]
    moved = before != source.data_name and before.partition(":")[0] == kind and ":" in before
    if not moved or read_subject(path).images != source.data_digest:
        return source
    note = f"The data are those of {before.partition(':')[2]}, which the run was started with."
    return dataclasses.replace(source, data_name=before, notes=(*source.notes, note))


def _with_distillation(recipe: Recipe, own: UserCallables) -> Recipe:
    """Return the recipe with distillation enabled if a teacher was given."""
    if own.teacher is None or recipe.distillation is not None:
        return recipe
    return recipe.model_copy(update={"distillation": Distillation()})


def _method_of(method: MethodLike | None) -> Method:
    found = Trainings() if method is None else method
    if isinstance(found, str):
        found = parse_method(found)
    if not isinstance(found, Method) or isinstance(found, CustomMethod):
        raise RecipeError(
            "a method must be a value of bcnet.Trainings, bcnet.BCNet, ..., of your own bcnet.Method, or a text such "
            f"as 'bcnet:epochs=8'; got {method!r}"
        )
    return found


def _check_start_name(start: str | None) -> None:
    if start is not None and start not in get_args(Start):
        raise RecipeError(f"start must be one of {', '.join(get_args(Start))}; got {start!r}")


def _with_functions(method: Method, loss: Loss | None, tags: Mapping[str, str]) -> tuple[Method, UserCallables]:
    """Return the method with functions and custom searchers replaced by names, and those functions."""
    score = getattr(method, "score", "accuracy")
    own = user_callables(loss, score, tags)
    changes: dict[str, Any] = {"score": "custom"} if own.per_image is not None else {}
    searcher = getattr(method, "searcher", None)
    if searcher is not None:
        custom, name = user_searcher(searcher)
        own = dataclasses.replace(own, searcher=custom)
        changes |= {"searcher": name} if custom is not None else {}
    return (method.model_copy(update=changes) if changes else method), own


def _start_of(method: Method, start: str | None, space: SpaceSettings, source: Source) -> Start:
    """Return the start that was requested; by default trained weights, unless networks may be wider than these."""
    if source.task.imitates:
        if start not in (None, "pretrained") or space.widen > 1:
            raise RecipeError(
                "an imitation starts from the weights of the network that it imitates; got "
                f"{f'start={start!r}' if start not in (None, 'pretrained') else f'widen={space.widen:g}'}: leave it out"
            )
        return "pretrained"
    if start is not None:
        return start  # type: ignore[return-value]
    if method.usual_start != "original":
        return method.usual_start
    if space.widen > 1:
        return "scratch"
    return "original" if source.pretrained is None else "pretrained"


def _complete_method(
    settings: Settings, source: Source, budget: Budget | None, traced: Callable[[], WidthSpace]
) -> tuple[Settings, Budget]:
    """Return the settings with the method's unset fields filled in, and the budget."""
    method = settings.method
    limit = budget
    if isinstance(method, Given):
        space = traced()
        widths = resolve_widths(method.values, space, source.model, settings.model)
        method = Given(widths)
        # The budget is checked against the space's narrowest choices; given widths may be narrower still.
        limit = budget or Budget(macs=int(max(space.cost(w).macs for w in (widths, space.narrowest))))
    assert limit is not None, "only given widths come without a budget"
    options = settings.options
    share = 1 - options.validation_fraction - options.fresh_fraction if source.data.holds_out else 1.0
    method = method.complete(Request(settings.training, settings.start, share, limit, traced))
    values = {name: getattr(settings, name) for name in Settings.model_fields}
    return make_settings(**{**values, "method": method, "limits": limits_of(limit)}), limit


def _without_weights(source: Source) -> Source:
    """Return the source without its trained weights, which a wider network cannot start from."""
    if source.pretrained is None:
        return source
    return dataclasses.replace(source, pretrained=None, notes=(*source.notes, _TOO_NARROW))


def _with_note_on_weights(source: Source, start: Start) -> Source:
    """Return the source with a note that says how the model's own weights are used."""
    if source.pretrained is None:
        return source
    note = _FROM_TRAINED if start == "pretrained" else _NOT_FROM_TRAINED.format(start)
    return dataclasses.replace(source, notes=(*source.notes, note))


def _check(source: Source, settings: Settings) -> None:
    """Raise RecipeError if recipe and task disagree, the teacher does not fit, or required weights are missing."""
    _check_teacher(source)
    check_task(source, settings)
    if settings.space.widen > 1 and (settings.pretrained or settings.start in ("pretrained", "original")):
        raise RecipeError(
            "networks that may be wider than the original start from fresh weights; got widen "
            f"{settings.space.widen:g} with trained ones: leave one of them out"
        )
    method = settings.method
    if method.inherits and (settings.space.widen > 1 or settings.start == "supernet"):
        wrong = "start='supernet'" if settings.start == "supernet" else f"widen {settings.space.widen:g}"
        raise RecipeError(
            "a supernet that starts from the trained original is as wide as that, and the original does not start from "
            f"it; got {wrong}: leave it out, or take the method's start=scratch"
        )
    if source.task.imitates and isinstance(method, Pruned) and method.criterion == "taylor":
        raise RecipeError(
            "Taylor terms rank channels by the gradient of the loss, which is zero where a network imitates itself; "
            "got criterion 'taylor': take pruned:criterion=magnitude"
        )
    if settings.start == "supernet" and not settings.method.trains_supernet:
        raise RecipeError(
            f"start='supernet' needs a supernet, which the method {settings.method.name} does not train: take "
            "start='scratch' or method=BCNet()"
        )
    if settings.start == "pretrained" and source.pretrained is None:
        raise RecipeError(
            "start='pretrained' needs weights to start from; there are none: give pretrained= (--pretrained), or the "
            "model as a module with its weights"
        )


def _check_teacher(source: Source) -> None:
    """Raise RecipeError if the user's teacher has other outputs than the model."""
    teacher = source.own.teacher
    if teacher is None:
        return
    if not source.task.soft_labels:
        raise RecipeError(f"a teacher is for classification; got the task {source.task.name!r}: leave it out")
    example = source.example()
    with torch.no_grad():
        wanted = call_model(copy.deepcopy(source.model).eval(), example)
        try:
            found = call_model(copy.deepcopy(teacher).eval().cpu(), example)
        except Exception as error:
            raise RecipeError(
                f"a teacher runs on the inputs of the model; {type(teacher).__name__} failed with "
                f"{type(error).__name__}: {error}: wrap it in a module that prepares them"
            ) from error
    if not isinstance(found, torch.Tensor) or found.shape != wanted.shape:
        got = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise RecipeError(f"a teacher must give logits of the model's shape, {tuple(wanted.shape)}; got {got}")


def check_task(source: Source, settings: Settings) -> None:
    """Raise RecipeError if the recipe does not suit the task."""
    if source.task.soft_labels:
        return
    method = settings.method
    if isinstance(method, SupernetMethod) and method.strategy == "sandwich":
        raise RecipeError(
            f"the strategy sandwich distils from the full width, which is for classification; got the task "
            f"{source.task.name!r}: take strategy unilateral"
        )
    for recipe in (settings.supernet_recipe, settings.training):
        if recipe.label_smoothing or recipe.distillation is not None:
            raise RecipeError(
                f"label smoothing and distillation are for classification; got the task {source.task.name!r}: "
                "leave them out of the recipe (--set label_smoothing=0 --set distillation=null)"
            )


def _with_multiples(settings: Settings, source: Source, budget: Budget | None, path: Path) -> Settings:
    """Return the settings with the width multiples of the stored run, or those that the latency model recommends."""
    if settings.space.multiple_of != "auto":
        return settings
    stored = stored_settings(path)
    requested = None if budget is None else latency_of(budget)
    if stored is not None and isinstance(stored.space.multiple_of, dict):
        chosen: dict[str, int] = stored.space.multiple_of
    elif requested is None or requested.model is None:
        return settings  # which no space can be traced with, as the message says
    else:
        plain = settings.model_copy(update={"space": settings.space.model_copy(update={"multiple_of": 1})})
        space = trace(source.model, source.example(), plain)
        check_model(requested.model, space)
        chosen = multiples(space, requested.model)
    return settings.model_copy(update={"space": settings.space.model_copy(update={"multiple_of": chosen})})
