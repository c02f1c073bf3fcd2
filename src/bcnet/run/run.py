"""Reader of a run directory, for reports, exports, studies and users.

An unfinished run has some of the files; attributes without a file are None or empty. Files are read on access, and
nothing is changed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from bcnet.costs import Budget, Cost, IntArray, Latency, OnMicrocontroller, Polynomial
from bcnet.errors import ModelError, RunError
from bcnet.files.tensors import load_module, read_tensors
from bcnet.prior import Prior
from bcnet.run import names
from bcnet.run.directory import (
    RunDirectory,
    read_graph_file,
    read_latency_model,
    read_result,
    read_settings,
    run_path,
)
from bcnet.run.finished import NETWORK_FILES, FinishedRun, factory_of, input_facts
from bcnet.run.inputs import InputFacts
from bcnet.run.result import NETWORKS, RunResult, Which
from bcnet.run.score import measurement_of, search_seconds
from bcnet.run.settings import Settings
from bcnet.run.status import Status, read_status
from bcnet.run.subject import Subject, not_of_this_version, subject_of
from bcnet.run.workload import ModelLike, make_model, trace, widened_model
from bcnet.searchers import Candidate, EvaluationStore
from bcnet.space import FixedDimension, LayerTerms, WidthGroup, Widths, WidthSpace
from bcnet.supernet import Supernet
from bcnet.tasks import Metric
from bcnet.train import ChannelCounts, LossRecords


@dataclass(frozen=True)
class Network:
    """A final network with its test result.

    `value` is the task's `metric` on this number of images, and `low` and `high` its 95 % interval. `by_class` maps
    each class number to its number of test images and the value.
    """

    label: str
    widths: Widths
    cost: Cost
    value: float
    images: int
    metric: Metric
    low: float
    high: float
    by_class: Mapping[int, tuple[int, float]] = dataclasses.field(default_factory=dict)


class Run:
    """Content of the run directory `path`.

    Example: `bcnet.Run.open("runs/half").networks["searched"].value`.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings
        self._directory = RunDirectory(path, settings)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """Open a run directory, finished or not.

        Raises:
            RunError: not a run directory, or corrupt settings. Attributes raise it if their own file is corrupt.
        """
        folder = run_path(path)
        return cls(folder, read_settings(folder))

    @property
    def status(self) -> Status:
        """Return the current state of the run."""
        return read_status(self.path)

    @cached_property
    def budget(self) -> Budget:
        """Budget as given; limits on latency, arena and flash have the models of the search."""
        budget = self.settings.budget
        for measure in budget.limits:
            if isinstance(measure, Latency) and self._directory.has(names.LATENCY_MODEL):
                fitted = dataclasses.replace(measure, model=read_latency_model(self._directory))
                budget = budget.with_measure(fitted)
            if isinstance(measure, OnMicrocontroller) and self._directory.has(names.CONVERTED_GRAPH):
                converted = dataclasses.replace(measure, graph=read_graph_file(self._directory))
                budget = budget.with_measure(converted)
        return budget

    @cached_property
    def _subject(self) -> Subject | None:
        document = _optional(self._directory, names.SPACE)
        return None if document is None else subject_of(document, self.path)

    @cached_property
    def space(self) -> WidthSpace | None:
        """Groups, layers and costs, without layouts; None before the network is traced."""
        return None if self._subject is None else _space_of(self._subject, self.path)

    @cached_property
    def result(self) -> RunResult | None:
        """Content of `result.json`; None before the run is finished."""
        return read_result(self.path) if (self.path / names.RESULT).exists() else None

    @cached_property
    def prior(self) -> Prior | None:
        """Prior over widths; None if there is none yet."""
        return None if self.space is None else _prior(self._directory, self.space)

    @cached_property
    def evaluations(self) -> tuple[Candidate, ...]:
        """Every candidate scored so far, in order."""
        return () if self.space is None else _evaluations(self._directory, self.space)

    @cached_property
    def networks(self) -> Mapping[str, Network]:
        """Test results of "original", "uniform" and "searched", for networks that are trained."""
        if self._subject is None or self.space is None:
            return {}
        return _networks(self._directory, self.space, self._subject.task.headline)

    @cached_property
    def counts(self) -> tuple[IntArray, ...]:
        """Number of trainings of each channel of each group in the supernet."""
        return _counts(self._directory)

    @cached_property
    def records(self) -> LossRecords | None:
        """Widths and losses of the supernet's steps; None before it is trained."""
        file = self.path / names.RECORDS
        return LossRecords.load(file, self._directory.identity("records")) if file.exists() else None

    @cached_property
    def examples(self) -> Mapping[str, Any]:
        """Columns and rows of test images for the report; empty before the networks are trained."""
        return self._directory.read(names.EXAMPLES) if self._directory.has(names.EXAMPLES) else {}

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names or numbers of the classes; empty before the network is traced."""
        return () if self._subject is None else InputFacts.from_dict(self._subject.input, self.path).class_names

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds spent in each stage so far, over all resumes."""
        return self._directory.seconds()

    @property
    def search_cost(self) -> tuple[float, float | None]:
        """Cost of the search so far: seconds, and trainings of the original once that is trained."""
        return search_seconds(self.seconds)

    def identity(self, stage: str) -> dict[str, str]:
        """Return the marks of a stage's tensor files."""
        return self._directory.identity(stage)

    def network(self, which: Which = "searched", factory: ModelLike | None = None) -> nn.Module:
        """Return a trained network in eval mode on the CPU; `factory` is as in `bcnet.load`.

        Raises:
            RunError: the run is not finished, or a file is corrupt.
            ModelError: the factory is required, or makes another network.
        """
        return FinishedRun.read(self.path, factory).network(which)

    def supernet(self, model: ModelLike | None = None) -> Supernet:
        """Return the trained supernet in eval mode on the CPU.

        `model` is the model given to the run; required unless it was given by a name that imports no code.

        Raises:
            RunError: there is no supernet, or its file is corrupt.
            ModelError: the model is required, or is not the run's.
        """
        facts = input_facts(self.path, self.settings)
        wanted = factory_of(self.path, self.settings.model, facts, model)
        channels, height = facts.channels_and_size
        _, network, factory = make_model(wanted, facts.num_classes, channels, height)
        space = trace(network, facts.zeros(2), self.settings)
        if self.space is None or space.fingerprint() != self.space.fingerprint():
            raise ModelError(
                f"a supernet needs the model of the run, {self.settings.model!r}; got one of another space"
            )
        if self.settings.space.widen > 1:
            network = widened_model(network, factory, space, self.settings)
        supernet = Supernet(network, space)
        file = self.path / names.SUPERNET
        if not file.exists():
            raise RunError(f"run {self.path} has no trained supernet: repeat its command to train it")
        load_module(supernet, read_tensors(file, self.identity("supernet"))[0], file)
        return supernet.eval()

    def _repr_html_(self) -> str:
        from bcnet.display import table

        state = self.status
        rows = [(s.record.name, s.record.done, s.record.total, s.record.unit, s.state) for s in state.stages]
        title = f"{self.settings.model} on {self.settings.data}, budget {self.settings.budget}: {state.state}"
        return table(title, ("stage", "done", "of", "unit", ""), rows, [f"Run directory: {self.path}"])


def _optional(directory: RunDirectory, name: str) -> dict[str, Any] | None:
    return directory.read(name) if directory.file(name).exists() else None


def _space_of(subject: Subject, path: Path) -> WidthSpace:
    try:
        layers = tuple(LayerTerms.from_dict(layer) for layer in subject.layers)
        return WidthSpace(
            groups=tuple(WidthGroup(**group.model_dump()) for group in subject.groups),
            macs_terms=sum((layer.macs for layer in layers), Polynomial({})),
            params_terms=sum((layer.params for layer in layers), Polynomial({})),
            live_terms=tuple(Polynomial.from_list(terms) for terms in subject.live),
            fixed=tuple(FixedDimension(**dimension.model_dump()) for dimension in subject.fixed),
            layers=layers,
            uncounted=subject.uncounted,
            original=Cost(subject.macs, subject.params, subject.others),
            own_widths=subject.original_widths,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise not_of_this_version(path) from None


def _prior(directory: RunDirectory, space: WidthSpace) -> Prior | None:
    document = _optional(directory, names.PRIOR)
    return None if document is None else Prior.from_dict(document, space)


def _evaluations(directory: RunDirectory, space: WidthSpace) -> tuple[Candidate, ...]:
    file = directory.file(names.EVALUATIONS)
    if not file.exists() or not file.stat().st_size:
        return ()
    with EvaluationStore(file, space, directory.settings.fingerprint()) as store:
        return store.evaluations


def _networks(directory: RunDirectory, space: WidthSpace, metric: Metric) -> dict[str, Network]:
    networks: dict[str, Network] = {}
    for key, label in NETWORKS.items():
        file = directory.file(NETWORK_FILES[key])
        if file.exists():
            _, state = read_tensors(file, directory.identity(label))
            widths = tuple(state["widths"])
            # An original reused from another run has the costs reported there.
            others = space.reference.others if key == "original" else state.get("others", {})
            cost = dataclasses.replace(space.cost(widths), others=others)
            test = measurement_of(state)
            value = test.figures[metric.key]
            interval = test.interval(metric)
            networks[key] = Network(label, widths, cost, value, test.count, metric, *interval, test.by_class)
    return networks


def _counts(directory: RunDirectory) -> tuple[IntArray, ...]:
    file = directory.file(names.COUNTS)
    return tuple(ChannelCounts.load(file, directory.identity("counts"))) if file.exists() else ()
