"""Stage of a budget on arena or flash: converts the network at three widths before the first training."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, ClassVar

from bcnet.costs import Budget, ConvertedGraph, OnMicrocontroller
from bcnet.costs.base import fingerprint
from bcnet.errors import RunError
from bcnet.progress.forecast import Planned
from bcnet.run import names
from bcnet.run.directory import read_graph_file
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.stages.base import Context, Stage
from bcnet.stages.calibration import CalibrationStage, calibrate
from bcnet.tflite.graph import NETWORKS, read_graph


class ConversionStage(Stage):
    """Stage that makes the converted graph from which arena and flash are computed."""

    name: ClassVar[str] = "conversion"
    file: ClassVar[str] = names.CONVERTED_GRAPH
    kind: ClassVar[str] = "conversion"

    def applies(self, settings: Settings) -> bool:
        """Return whether the budget limits arena or flash."""
        return bool(measures_of(settings.budget))

    def reads(self, settings: Settings) -> tuple[str, ...]:
        """See `Stage`; only the network matters."""
        return ()

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """Three networks to convert."""
        return Planned(self.name, NETWORKS, "networks", kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Convert the networks, unless a graph was given."""
        given = [m.graph for m in measures_of(context.workload.budget) if m.graph is not None]

        def tell(done: int) -> None:
            advance(done, "converted and loaded")

        def document() -> dict[str, Any]:
            workload = context.workload
            model = copy.deepcopy(workload.model).cpu()
            graph = read_graph(model, workload.source.example(), space=workload.space, on_converted=tell)
            return {"graph": graph.to_dict()}

        if given:
            context.directory.write(self.file, {"graph": given[0].to_dict()})
            return
        with context.work(self.name, NETWORKS, "networks") as advance:
            # One process converts; the others wait for its result.
            context.directory.write(self.file, context.world.on_rank_zero(document))

    def load(self, context: Context) -> ConvertedGraph:
        """Return the graph."""
        graph = read_graph_file(context.directory)
        if graph.space != fingerprint(context.workload.space):
            raise RunError(
                f"{context.directory.file(self.file)} is of another network than this one: start a new run directory"
            )
        return graph


MEASURING = (CalibrationStage.name, ConversionStage.name)
"""Stages that must run before costs can be computed."""


def with_models(context: Context) -> Context:
    """Return the context with a budget whose measures can all be computed."""
    return read_converted(calibrate(context))


def measures_of(budget: Budget) -> list[OnMicrocontroller]:
    """Return the measures of the converted network that a budget limits."""
    return [measure for measure in budget.limits if isinstance(measure, OnMicrocontroller)]


def read_converted(context: Context) -> Context:
    """Return the context with a budget whose arena and flash can be computed.

    Raises:
        BudgetError: the budget is below the narrowest network.
    """
    limited = measures_of(context.workload.budget)
    if not limited or ConversionStage.name not in context.names:
        return context
    graph: ConvertedGraph = context.output(ConversionStage.name)
    budget = context.workload.budget
    for measure in limited:
        budget = budget.with_measure(dataclasses.replace(measure, graph=graph))
    workload = context.workload.limited_by(budget)
    context.reporter.note(
        f"Arena and flash follow from the converted network; {graph.checked} networks confirmed them in tflite-micro."
    )
    return dataclasses.replace(context, workload=workload)
