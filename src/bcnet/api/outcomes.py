"""What the calls give back, and how far a run goes for it: to the prior, to the widths, or to the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bcnet.display import table
from bcnet.files.documents import write_plain
from bcnet.prior import Prior
from bcnet.run.score import headline_of, headline_value
from bcnet.run.settings import Settings
from bcnet.searchers import SearchResult
from bcnet.space import Widths, WidthSpace
from bcnet.stages.base import Context
from bcnet.stages.final import TrainedNetwork
from bcnet.stages.prior import PriorStage
from bcnet.stages.result import result_document, table_rows
from bcnet.stages.search import found_by
from bcnet.supernet import Supernet, describe


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
        metric = headline_of(self.result)
        rows = [
            (label, n["macs"], n["macs_ratio"], n["params"], headline_value(n, metric))
            for _, label, n in table_rows(self.result)
        ]
        title = f"{self.result['model']} on {self.result['data']}, budget {self.result['budget']['given']}"
        headings = ("network", "MACs", "ratio", "parameters", metric.heading)
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


TO_THE_PRIOR = ("supernet", "prior")
TO_THE_WIDTHS = (*TO_THE_PRIOR, "evolution", "trials", "reliability", "finalists")
ONE_NETWORK = ("searched",)


def with_original(stages: tuple[str, ...], settings: Settings) -> tuple[str, ...]:
    """Stages by name, and that of the original where networks that they train start from it or learn from it."""
    final = "searched" in stages
    learns = final and settings.final.distillation is not None
    starts = (final or settings.has_trials) and settings.final_from == "original"
    return ("original", *stages) if learns or starts else stages


def to_the_prior(context: Context) -> TrainedSupernet:
    """Train the supernet and learn the prior."""
    supernet = context.output("supernet")[0]
    prior = context.output("prior") if "prior" in context.names else PriorStage().output(context)
    return TrainedSupernet(supernet, prior, context.workload.space, context.directory.path)


def to_the_widths(context: Context) -> FoundWidths:
    """Search as well."""
    found = found_by(context)
    assert found is not None, "candidates were scored"
    if "reliability" in context.names:
        context.output("reliability")
    return FoundWidths(context.output("finalists").widths, found, context.workload.space, context.directory.path)


def to_one_network(context: Context) -> TrainedNetwork:
    """Train the network of given widths, and no other but the one it learns from."""
    trained: TrainedNetwork = context.output("searched")
    return trained


def to_the_found_network(context: Context) -> TrainedNetwork:
    """Search, and train the found network and no other but the one it starts from or learns from."""
    to_the_widths(context)
    return to_one_network(context)


def to_the_end(context: Context) -> SearchOutcome:
    """Go through all stages, and compare the original, the Uniform and the searched network."""
    for name in context.names:
        context.output(name)
    document = result_document(context)
    directory = context.directory
    searched = context.output("searched")
    workload = context.workload
    described = describe(workload.original, workload.space, searched.widths, reference=context.settings.model)
    context.world.on_rank_zero(lambda: write_plain(directory.file("architecture.json"), described))
    directory.write("result.json", document)
    result = directory.read("result.json")
    return SearchOutcome(searched.network, searched.widths, found_by(context), directory.path, result)
