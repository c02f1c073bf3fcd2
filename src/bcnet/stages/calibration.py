"""Stages before the first training, for budgets whose costs have to be measured: latency, arena and flash.

For a latency budget, networks of random widths are timed and a latency model is fitted. A given model, of this machine
or another, is stored in the run unchanged. For a budget on arena or flash, the network is converted at three widths.
Everything that depends on such a limit waits for its stage, since the cost of widths is unknown before.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bcnet.costs import LATENCY, Budget, ConvertedGraph, Latency, LatencyModel, OnMicrocontroller, TimedNetwork
from bcnet.costs.base import fingerprint
from bcnet.errors import BudgetError, ExportError, RunError
from bcnet.latency.calibration import MOST, NEAR, machine, measure_and_fit, subject
from bcnet.latency.engines import engine_of
from bcnet.latency.measurement import engine_times, measure_steadily
from bcnet.progress.forecast import Planned
from bcnet.pytree import Pytree
from bcnet.run import names
from bcnet.run.directory import read_graph_file, read_latency_model
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.space import Widths, WidthSpace
from bcnet.space.problem import Problem
from bcnet.stages.base import Context, Stage
from bcnet.supernet import build
from bcnet.tflite.graph import NETWORKS, read_graph

TIMES = "calibration_times.json"  # exists until the model does


class CalibrationStage(Stage):
    """Stage that makes the latency model of the run's budget."""

    name: ClassVar[str] = "calibration"
    file: ClassVar[str] = names.LATENCY_MODEL
    kind: ClassVar[str] = "calibration"

    def applies(self, settings: Settings) -> bool:
        """Return whether the budget limits latency."""
        return latency_of(settings.budget) is not None

    def plan(self, settings: Settings, workload: Workload) -> Planned:
        """Largest number of networks to time."""
        return Planned(self.name, MOST + NEAR, "networks", kind=self.kind, file=self.file)

    def run(self, context: Context) -> None:
        """Measure and fit, unless a model was given."""
        latency = latency_of(context.workload.budget)
        assert latency is not None, "the stage applies"
        if latency.model is not None:
            context.directory.write(self.file, {"model": latency.model.to_dict()})
            return
        with context.work(self.name, MOST + NEAR, "networks") as advance:

            def tell(so_far: Sequence[TimedNetwork]) -> None:
                advance(len(so_far), f"the quickest {latency.text(min(m.nanoseconds for m in so_far))}")

            def document() -> dict[str, Any]:
                times_file = context.directory.file(TIMES)
                network, images = _subject(context, latency)
                model = measure_and_fit(
                    context.workload.space,
                    network,
                    images,
                    latency,
                    times_file=times_file,
                    on_measured=tell,
                    near_limit=lambda model: _near_limit(context, dataclasses.replace(latency, model=model)),
                )
                return {"model": model.to_dict()}

            # One process measures; the others wait for its result.
            context.directory.write(self.file, context.world.on_rank_zero(document))
            context.directory.drop(TIMES)

    def load(self, context: Context) -> LatencyModel:
        """Return the model."""
        model = read_latency_model(context.directory)
        latency = latency_of(context.workload.budget)
        if latency is not None and latency.model not in (None, model):
            raise RunError(
                f"{context.directory.file(self.file)} holds another latency model than the one given: leave it out to "
                "go on, or give another --out"
            )
        check_model(model, context.workload.space)
        return model


def _near_limit(context: Context, latency: Latency) -> list[Widths]:
    """Return random widths whose predicted latency is near the limit; none if every network is too slow."""
    assert latency.model is not None, "it is fitted"
    # Without its margin the model predicts the limit itself, where a search looks for networks.
    expected = dataclasses.replace(latency, model=dataclasses.replace(latency.model, margin=0.0))
    budget = context.workload.budget.with_measure(expected)
    if not all(measure.countable for measure in budget.limits):
        return []
    try:
        problem = Problem.of(context.workload.space, budget, context.settings.seed)
    except BudgetError:
        return []
    drawn = problem.near_budget(2 * NEAR, np.random.default_rng([problem.seed, 8]))
    return list(dict.fromkeys(problem.widths(drawn)))[:NEAR]


def check_model(model: LatencyModel, space: WidthSpace) -> None:
    """Raise BudgetError unless the model was fitted to the network of this space."""
    here = fingerprint(space)
    if model.space != here:
        raise BudgetError(
            f"a latency model predicts the network that it was fitted to; got one of {model.space}, here {here}: run "
            "`bcnet calibrate` for this model and these images"
        )


def latency_of(budget: Budget) -> Latency | None:
    """Return the latency measure that a budget limits, or None."""
    measure = budget.measure(LATENCY.name)
    return measure if isinstance(measure, Latency) else None


def calibrate(context: Context) -> Context:
    """Return the context with a budget whose measures can all be computed.

    Raises:
        BudgetError: the budget is below the narrowest network.
    """
    latency = latency_of(context.workload.budget)
    if latency is None or CalibrationStage.name not in context.names:
        return context
    model: LatencyModel = context.output(CalibrationStage.name)
    workload = context.workload.limited_by(
        context.workload.budget.with_measure(dataclasses.replace(latency, model=model))
    )
    bound = f"{100 * model.margin:.1f} % are added to each, so that nine of ten networks keep to it"
    context.reporter.note(
        f"Latency is predicted from {model.count} networks ({model.form}): the median error on unseen ones is "
        f"{100 * model.error:.1f} %; {bound}."
    )
    return dataclasses.replace(context, workload=workload)


def time_networks(context: Context, widths: Sequence[Widths]) -> dict[Widths, TimedNetwork] | None:
    """Return latencies at the machine's speed during calibration; None without a latency limit or on another machine.

    Raises:
        BudgetError: the machine is too busy; running the same command again continues from here.
    """
    latency = latency_of(context.workload.budget)
    if latency is None or latency.model is None or not is_here(latency):
        return None
    network, images = _subject(context, latency)
    times = engine_times(engine_of(latency.engine), network, images, latency.threads)
    known = latency.model.references
    rows = context.world.on_rank_zero(
        lambda: [m.to_list() for m in measure_steadily(times, widths, latency.threads, known)]
    )
    return {m.widths: m for m in map(TimedNetwork.from_list, rows)}


def is_here(latency: Latency) -> bool:
    """Return whether there is a model and it was measured on this machine."""
    try:
        return latency.model is not None and latency.model.machine == machine(latency)
    except ExportError:  # the engine is not installed
        return False


def _subject(context: Context, latency: Latency) -> tuple[Any, Pytree]:
    """Return a function that makes a network of given widths, and the images that it is timed on."""
    workload = context.workload
    model, images = subject(workload.model, workload.source.example(), latency)
    return lambda widths: build(model, workload.space, widths), images


class TimingStage(Stage):
    """Times the original, Uniform and searched network by `time_networks`, in nanoseconds; None without a limit."""

    name: ClassVar[str] = "timing"
    file: ClassVar[str] = "timing.json"
    needs: ClassVar[tuple[str, ...]] = ("searched",)

    def applies(self, settings: Settings) -> bool:
        """Return whether the budget limits latency."""
        return latency_of(settings.budget) is not None

    def plan(self, settings: Settings, workload: Workload) -> None:
        """Hidden in the plan: takes less than a second."""

    def run(self, context: Context) -> None:
        """Time the networks."""
        trained = [name for name in ("original", "Uniform", "searched") if name in context.names]
        widths = {name: context.output(name).widths for name in trained}
        found = time_networks(context, list(dict.fromkeys(widths.values())))
        times = None if found is None else {name.lower(): found[w].nanoseconds for name, w in widths.items()}
        context.directory.write(self.file, {"nanoseconds": times})

    def load(self, context: Context) -> dict[str, float] | None:
        """Return the measured times."""
        times: dict[str, float] | None = context.directory.read(self.file)["nanoseconds"]
        return times


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
