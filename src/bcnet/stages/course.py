"""How far a run goes: to the prior, to the widths, or to the end. Each course takes up what is finished already."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bcnet.errors import RunError
from bcnet.files.documents import write_plain
from bcnet.prior import Prior
from bcnet.searchers import SearchResult
from bcnet.space import Widths, WidthSpace
from bcnet.space.display import table
from bcnet.stages.base import Context, find_prior, same_again, train_final, train_original, train_supernet
from bcnet.stages.narrowing import find_widths
from bcnet.stages.result import Networks, result_document, table_rows
from bcnet.supernet import Supernet, describe

TO_THE_PRIOR = ("supernet", "prior")
TO_THE_WIDTHS = (*TO_THE_PRIOR, "evolution", "finalists")


@dataclass(frozen=True)
class SearchOutcome:
    """What `search` and `retrain` give back.

    `network` is the narrow network of the model's own class, trained, in eval mode; `widths` its widths,
    one per group; `found` all that was evaluated, None where the widths were given; `result` the content of
    `result.json`, accuracies in percent.
    """

    network: nn.Module
    widths: Widths
    found: SearchResult | None
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


@dataclass(frozen=True)
class TrainedSupernet:
    """What `train_supernet` gives back: a trained supernet of `space`, and the prior for the run's budget."""

    supernet: Supernet
    prior: Prior
    space: WidthSpace
    run_dir: Path


@dataclass(frozen=True)
class FoundWidths:
    """What `evolve` gives back: the widths to train, all that was evaluated, and the space they belong to."""

    widths: Widths
    found: SearchResult
    space: WidthSpace
    run_dir: Path


def to_the_prior(context: Context) -> TrainedSupernet:
    """Train the supernet and learn the prior."""
    _begin(context)
    supernet, records = train_supernet(context)
    return TrainedSupernet(supernet, find_prior(context, records), context.subject.space, context.directory.path)


def to_the_widths(context: Context) -> FoundWidths:
    """Search as well."""
    _begin(context)
    narrowed = find_widths(context)
    assert narrowed.found is not None
    return FoundWidths(narrowed.choice.widths, narrowed.found, context.subject.space, context.directory.path)


def to_the_end(context: Context) -> SearchOutcome:
    """Train the original, the Uniform and the searched network too, and compare them.

    Where the settings give the widths, or name a baseline, there is no supernet.
    """
    _begin(context)
    narrowed = find_widths(context)
    choice, found = narrowed.choice, narrowed.found
    networks = _train_all(context, choice.widths, narrowed.supernet)
    document = result_document(context, networks, choice, found, supernet_skipped=narrowed.skipped)
    directory, searched = context.directory, networks.searched
    subject = context.subject
    described = describe(subject.original, subject.space, choice.widths, reference=context.settings.model)
    context.world.on_lead(lambda: write_plain(directory.file("architecture.json"), described))
    directory.write("result.json", document)
    return SearchOutcome(searched.network, searched.widths, found, directory.path, directory.read("result.json"))


def _begin(context: Context) -> None:
    for note in (*context.subject.data.notes, *context.subject.source.notes):
        context.reporter.note(note)
    _record_subject(context)


def _train_all(context: Context, widths: Widths, supernet: Supernet | None) -> Networks:
    space, budget = context.subject.space, context.settings.budget
    original = train_original(context, supernet)
    teacher = original.network if context.settings.final.distillation is not None else None
    uniform_widths = space.uniform(macs=budget.macs, params=budget.params)
    uniform = train_final(context, "Uniform", "uniform", uniform_widths, supernet, teacher)
    if context.settings.baseline == "uniform":
        return Networks(original, uniform, same_again(context, uniform, "uniform", "searched", "final"))
    return Networks(original, uniform, train_final(context, "searched", "final", widths, supernet, teacher))


def _record_subject(context: Context) -> None:
    """Write what the run works on; where it is written, model and data must still be the same behind their names.

    Raises:
        RunError: one of them has changed since the run started.
    """
    directory, now = context.directory, _space_summary(context)
    before = directory.read("space.json") if directory.has("space.json") else {}
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
        "original_widths": list(space.original_widths),
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
