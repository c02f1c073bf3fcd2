"""The whole job: from a network to a narrower one under a budget, trained and compared (design, "Public surface")."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bcnet.data import DataSet
from bcnet.errors import BudgetError, RecipeError, RunError
from bcnet.pipeline.estimate import estimate
from bcnet.pipeline.figures import write_pictures
from bcnet.pipeline.html import table_rows, write_page
from bcnet.pipeline.machine import threads
from bcnet.pipeline.plan import stages_ahead
from bcnet.pipeline.progress import Reporter, Together
from bcnet.pipeline.record import RunRecord
from bcnet.pipeline.result import Networks, result_document
from bcnet.pipeline.run_directory import (
    RunDirectory,
    check_usable,
    read_settings,
    write_plain,
)
from bcnet.pipeline.settings import Settings, default_recipe, make_settings, split_changes
from bcnet.pipeline.stages import Context, choose, evolve, find_prior, train_final, train_supernet
from bcnet.pipeline.subject import ModelLike, Source, Subject, open_source, prepare
from bcnet.searchers import SearchResult
from bcnet.space import Budget, Widths
from bcnet.space.display import table
from bcnet.supernet import describe
from bcnet.train import CHECKPOINT_SECONDS, Recipe, load_recipe


@dataclass(frozen=True)
class SearchOutcome:
    """What `search` gives back.

    `network` is the narrow network of the model's own class, trained from scratch, in eval mode; `widths` its widths,
    one per group; `found` all that was evaluated; `result` the content of `result.json`, accuracies in percent.
    """

    network: nn.Module
    widths: Widths
    found: SearchResult
    run_dir: Path
    result: Mapping[str, Any]

    def _repr_html_(self) -> str:
        rows = [
            (label, n["macs"], n["macs_ratio"], n["params"], n["test_top1"]) for _, label, n in table_rows(self.result)
        ]
        title = f"{self.result['model']} on {self.result['data']}, budget {self.result['budget']['given']}"
        headings = ("network", "MACs", "ratio", "parameters", "test top-1 (%)")
        widths = [(g["name"], g["max_width"], g["uniform"], g["searched"]) for g in self.result["groups"]]
        return table(title, headings, rows, [f"Run directory: {self.run_dir}"]) + table(
            "Widths", ("group", "original", "Uniform", "searched"), widths
        )


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

    Where `run_dir` holds the same run unfinished it goes on, and what is finished is not done again.

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
    if not isinstance(checkpoint_seconds, (int, float)) or not 0 <= checkpoint_seconds < math.inf:
        raise RecipeError(f"checkpoint_seconds is a number of seconds, 0 or more; got {checkpoint_seconds!r}")
    subject, settled = settle(
        model,
        data,
        budget=budget,
        run_dir=run_dir,
        recipe=recipe,
        supernet_epochs=supernet_epochs,
        changes=changes,
        image_size=image_size,
        **settings,
    )
    return _run(settled, subject, Path(run_dir), reporter or Reporter(), checkpoint_seconds)


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
    **settings: Any,
) -> tuple[Subject, Settings]:
    """What a run with these arguments of `search` works on, and all its settings; nothing is written.

    Raises:
        BCNetError: something that `search` would refuse.
    """
    if not isinstance(budget, Budget):
        raise BudgetError(f"a budget is a bcnet.Budget; got {budget!r}: write Budget(macs=0.5), for instance")
    path = Path(run_dir)
    check_usable(path)
    source = open_source(model, data, image_size=image_size, seed=settings.get("seed", 0))
    supernet, final = _recipes(source, recipe, dict(changes or {}), supernet_epochs)
    request = make_settings(
        model=source.model_name,
        data=source.data_name,
        image_size=image_size,
        budget_macs=budget.macs,
        budget_params=budget.params,
        supernet=supernet,
        final=final,
        **settings,
    )
    settled = request.settled(read_settings(path) if (path / "settings.json").exists() else None)
    return prepare(source, settled), settled


def _run(
    settings: Settings, subject: Subject, path: Path, reporter: Reporter, checkpoint_seconds: float
) -> SearchOutcome:
    with RunDirectory.open(path, settings) as directory, threads(settings.threads), RunRecord(path) as record:
        both = Together(reporter, record)
        ahead = stages_ahead(settings, subject, {file.name for file in path.iterdir()})
        both.plan(ahead)
        expected = estimate(settings, subject, ahead)
        for line in expected.lines() if expected is not None else ():
            both.note(line)
        return _stages(Context(settings, subject, directory, both, checkpoint_seconds))


def _stages(context: Context) -> SearchOutcome:
    space, budget = context.subject.space, context.settings.budget
    for note in context.subject.data.notes:
        context.reporter.note(note)
    _record_subject(context)
    supernet, records = train_supernet(context)
    found = evolve(context, supernet, find_prior(context, records))
    for note in found.notes:
        context.reporter.note(note)
    choice = choose(context, supernet, found)
    original = train_final(context, "original", "original", space.full)
    teacher = original.network if context.settings.final.distillation is not None else None
    uniform_widths = space.uniform(macs=budget.macs, params=budget.params)
    uniform = train_final(context, "Uniform", "uniform", uniform_widths, teacher)
    searched = train_final(context, "searched", "final", choice.widths, teacher)
    networks = Networks(original, uniform, searched)
    document = result_document(context, networks, choice, found, supernet_skipped=len(records.skipped))
    described = describe(context.subject.model, space, choice.widths, reference=context.settings.model)
    write_plain(context.directory.file("architecture.json"), described)
    write_pictures(context.directory.path, document)
    write_page(context.directory.path, document, found)
    context.directory.write("result.json", document)
    return SearchOutcome(searched.network, searched.widths, found, context.directory.path, document)


def _recipes(
    source: Source, recipe: Recipe | str | None, changes: dict[str, Any], supernet_epochs: int | None
) -> tuple[Recipe, Recipe]:
    if not isinstance(recipe, Recipe):
        name = recipe or default_recipe(source.model_name, source.data_name, source.data.image_shape[1])
        recipe = load_recipe(name)
    for_supernet, for_final = split_changes(changes)
    if supernet_epochs is not None:
        for_supernet["epochs"] = supernet_epochs
    # A supernet has no teacher: every path would need its own.
    supernet = recipe.changed(for_supernet).model_copy(update={"distillation": None})
    return supernet, recipe.changed(for_final)


def _record_subject(context: Context) -> None:
    """Write what the run works on; where it is written, model and data must still be the same behind their names.

    Raises:
        RunError: one of them has changed since the run started.
    """
    directory, now = context.directory, _space_summary(context)
    before = directory.read("space.json") if directory.file("space.json").exists() else {}
    for key, what, name in (
        ("fingerprint", "model", context.settings.model),
        ("images", "data", context.settings.data),
    ):
        if before.get(key, now[key]) != now[key]:
            raise RunError(
                f"run directory {directory.path} was started with another {what} of the name {name!r}: it has "
                f"changed since ({key} {before[key]}, now {now[key]}); put it back to go on, or give another --out"
            )
    directory.write("space.json", now)


def _space_summary(context: Context) -> dict[str, Any]:
    space = context.subject.space
    return {
        "fingerprint": space.fingerprint(),
        "images": context.subject.source.data_digest,
        "input": context.subject.source.input.to_dict(),
        "macs": space.reference.macs,
        "params": space.reference.params,
        "groups": [
            {
                "name": g.name,
                "max_width": g.max_width,
                "unit": g.unit,
                "choices": list(g.choices),
                "members": list(g.members),
            }
            for g in space.groups
        ],
        "fixed": [dataclasses.asdict(f) for f in space.fixed],
        "layers": [layer.to_dict() for layer in space.layers],
    }
