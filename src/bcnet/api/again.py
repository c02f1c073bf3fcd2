"""One stage of a run again, with other settings: another search on its supernet, or other networks from scratch.

A run directory stays what its settings say: other settings are another run, in a directory of its own, which takes over
the finished stages that both share (`takeover`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bcnet.data import DataSet
from bcnet.distributed import joined
from bcnet.errors import BCNetError, BudgetError, RunError
from bcnet.progress.base import Reporter
from bcnet.report import reported
from bcnet.run.directory import check_usable, read_settings
from bcnet.run.recipes import check_request, recipes_for
from bcnet.run.settings import Settings, make_settings
from bcnet.run.subject import ModelLike, Source, is_name, open_source, prepare, refuse_to_import, trace
from bcnet.run.widths import WidthsLike, resolve_widths
from bcnet.space import Budget, Widths
from bcnet.stages.conduct import agreed, check_seconds, conduct
from bcnet.stages.course import TO_THE_WIDTHS, FoundWidths, SearchOutcome, to_the_end, to_the_widths
from bcnet.stages.takeover import others
from bcnet.train import CHECKPOINT_SECONDS, Recipe

_DIGEST = re.compile(r" [0-9a-f]{12}$")  # ends the description of a data set that was passed in
_HOW_FOUND = ("baseline", "tune_steps", "finalist_steps", "tune_lr_share")  # settings that given widths make no use of


def evolve(
    run: str | Path,
    *,
    run_dir: str | Path | None = None,
    budget: Budget | None = None,
    seed: int | None = None,
    model: ModelLike | None = None,
    data: str | DataSet | None = None,
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **settings: Any,
) -> FoundWidths:
    """Search on the trained supernet of `run`: as its settings say, or with others in a run of their own.

    The supernet is not trained again; the prior is learnt again where the budget is another. `retrain` goes on with it.

    Args:
        run: a run directory, of `train_supernet` or `search`.
        run_dir: the directory of the new run; needed where a setting is another.
        budget: another limit.
        seed: of the search, where not the run's.
        model, data: as in `search`; needed where the run was given objects and not names, and where the model's name
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
        changes |= _limits(budget)
    if seed is not None:
        changes["search_seed"] = seed
    origin = Path(run)
    stored, target = read_settings(origin), Path(run_dir or run)
    if changes.get("early_stop", stored.early_stop) != stored.early_stop:
        changes.setdefault("score_batch_size", None)  # chosen anew: races want smaller batches
    with joined(stored.device) as world:
        request = _changed(stored, changes)
        _check_target(origin, target, stored, request)
        if not stored.has_supernet or (target != origin and not (origin / "supernet.safetensors").exists()):
            raise RunError(f"a search needs a trained supernet; run {origin} has none: run `bcnet train` there first")
        source = _source(origin, stored, model, data)
        settled = agreed(request, source, target, world)
        outcome = conduct(
            to_the_widths,
            prepare(source, settled),
            settled,
            target,
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            stages=TO_THE_WIDTHS,
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
    data: str | DataSet | None = None,
    image_size: int | None = None,
    final_from: str | None = None,
    take_from: Sequence[str | Path] = (),
    reporter: Reporter | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **settings: Any,
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
        model, data, image_size: as in `search`; for a run only where it was given objects and not names.
        final_from: what all final networks start from, where not as the run's: "scratch", or "supernet".
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
            source = _fresh_source(model, data, widths, run_dir, image_size, seed)
            request = _request(source, asked, changes or {}, image_size, started)
        else:
            if settings or image_size is not None:
                given = ", ".join((*settings, *(("image_size",) if image_size is not None else ())))
                raise RunError(f"what a run is of stays as it is; got {given}: leave it out, or leave out the run")
            assert stored is not None
            asked = check_request(recipe or stored.final, changes or {}, {"processes": stored.processes})
            source = _source(Path(run), stored, model, data)
            request = _with_final(stored, source, asked if recipe else None, changes or {}, seed)
        if final_from is not None:
            request = _changed(request, {"final_from": final_from})
        if widths is not None:
            request = _with_widths(request, source, widths)
        target = Path(run_dir or run or "")
        if stored is not None and run is not None:
            _check_target(Path(run), target, stored, request)
        settled = agreed(request, source, target, world)
        outcome = conduct(
            to_the_end,
            prepare(source, settled),
            settled,
            target,
            world,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            take_from=others((*(() if run is None else (run,)), *take_from), target),
        )
    return reported(outcome)


def _limits(budget: Budget) -> dict[str, Any]:
    if not isinstance(budget, Budget):
        raise BudgetError(f"a budget is a bcnet.Budget; got {budget!r}: write Budget(macs=0.5), for instance")
    return {"budget_macs": budget.macs, "budget_params": budget.params}


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


def _source(run: Path, stored: Settings, model: ModelLike | None, data: str | DataSet | None) -> Source:
    """The model and the data of a run, which must still be what they were."""
    for what in ("loss", "own_score", "pretrained"):
        if getattr(stored, what) is not None:
            raise RunError(
                f"run {run} was given something of your own ({what} {getattr(stored, what)}), which only your code "
                "has: repeat bcnet.search with it, in a run directory of its own"
            )
    objects = (("model", not is_name(stored.model), model), ("data", bool(_DIGEST.search(stored.data)), data))
    for what, is_object, given in objects:
        if given is None and is_object:
            name = getattr(stored, what)
            raise RunError(f"run {run} is of {name!r}, which only your code can make: give {what}=... as for the run")
    if model is None:
        refuse_to_import(stored.model, run)
    source = open_source(
        stored.model if model is None else model,
        stored.data if data is None else data,
        image_size=stored.image_size,
        seed=stored.seed,
    )
    for what, name, now in (("model", stored.model, source.model_name), ("data", stored.data, source.data_name)):
        if name != now:
            raise RunError(f"run {run} is of the {what} {name!r}; got {now!r}: give the same, or start a new search")
    return source


def _fresh_source(
    model: ModelLike | None,
    data: str | DataSet | None,
    widths: WidthsLike | None,
    run_dir: str | Path | None,
    image_size: int | None,
    seed: int | None,
) -> Source:
    wanted = {"model": model, "data": data, "widths": widths, "out": run_dir}
    missing = [f"--{name}" for name, value in wanted.items() if value is None]
    if model is None or data is None or run_dir is None or missing:
        raise BCNetError(
            f"retraining without a run needs --model, --data, --widths and --out; missing: {', '.join(missing)}"
        )
    check_usable(Path(run_dir))
    return open_source(model, data, image_size=image_size, seed=seed or 0)


def _request(
    source: Source,
    recipe: Recipe | None,
    changes: Mapping[str, Any],
    image_size: int | None,
    settings: Mapping[str, Any],
) -> Settings:
    supernet, final = recipes_for(source, recipe, changes)
    fixed = {"model": source.model_name, "data": source.data_name, "image_size": image_size, "budget_macs": 1.0}
    return make_settings(**fixed, supernet=supernet, final=final, **settings)


def _with_final(
    stored: Settings, source: Source, recipe: Recipe | None, changes: Mapping[str, Any], seed: int | None
) -> Settings:
    base = stored.final if recipe is None else recipes_for(source, recipe, {})[1]
    values: dict[str, Any] = {"final": base.changed(changes) if changes else base}
    if seed is not None:
        values["final_seed"] = seed
    return _changed(stored, values)


def _with_widths(request: Settings, source: Source, widths: WidthsLike) -> Settings:
    """The settings for given widths; their own cost is the budget that the Uniform network keeps to."""
    space = trace(source.model, source.example(), request)
    found: Widths = resolve_widths(widths, space, source.model, request.model)
    how_found = {name: Settings.model_fields[name].default for name in _HOW_FOUND}
    limit = {"budget_macs": space.cost(found).macs, "budget_params": None}
    return _changed(request, {"widths": found, **limit, **how_found})
