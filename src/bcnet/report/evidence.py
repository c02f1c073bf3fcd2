"""Evidence: what a run directory holds so far, read without changing the run.

A run that was stopped anywhere has some of it; what it has not reached is None or empty, and the report says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bcnet.costs import MEASURES, IntArray
from bcnet.errors import RunError
from bcnet.export import read_latencies
from bcnet.files.tensors import read_latest, read_tensors
from bcnet.prior import Prior
from bcnet.report.curves import Curve
from bcnet.run.directory import RunDirectory, read_settings
from bcnet.run.result_file import read_result
from bcnet.run.score import headline_of
from bcnet.run.settings import Settings
from bcnet.searchers import Candidate, EvaluationStore, accuracy_interval
from bcnet.searchers.result import effort, pareto_front
from bcnet.space import Budget, Cost, FixedDimension, LayerTerms, Polynomial, WidthGroup, Widths, WidthSpace
from bcnet.tasks import Classification, Metric
from bcnet.train import ChannelCounts, LossRecords

NETWORKS = {"original": "original", "uniform": "Uniform", "searched": "searched"}  # key in result.json: stage
_METHODS = {
    "search": "searched",
    "autoslim": "narrowed by AutoSlim's greedy slimming",
    "uniform": "narrowed alike in all layers",
    "random": "narrowed to the best of some random widths",
    "magnitude": "narrowed to what magnitude pruning leaves of the original",
    "fastnas": "narrowed to what FastNAS leaves of the original",
}
_FILES = {"original": "original", "uniform": "uniform", "searched": "final"}


@dataclass(frozen=True)
class Network:
    """A final network, with its one look at the test set.

    `value` is what the `metric` of the run's task came to on so many `images`, `low` and `high` its 95 % interval.
    """

    label: str
    widths: Widths
    cost: Cost
    value: float
    images: int
    metric: Metric
    low: float
    high: float


@dataclass(frozen=True)
class Evidence:
    """What a run directory holds so far.

    `space` has groups, layers and costs, but no layouts. `evaluations` are in order. `curves` are training losses by
    stage. `counts` has per group how often each channel was trained, `seconds` the time by stage, `latencies`
    what `measure_latency` kept.
    """

    path: Path
    settings: Settings
    space: WidthSpace | None = None
    result: Mapping[str, Any] | None = None
    prior: Prior | None = None
    evaluations: tuple[Candidate, ...] = ()
    networks: Mapping[str, Network] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    counts: tuple[IntArray, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    latencies: tuple[Mapping[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Model and data, for people: without the folders of this machine."""
        kind, colon, place = self.settings.data.partition(":")
        local = colon and kind != "hf"
        return f"{self.settings.model} on {place.rstrip('/').rpartition('/')[2] if local else self.settings.data}"

    @property
    def searches(self) -> bool:
        """Whether the widths are the best of scored candidates; else they were given, or a baseline found them."""
        return self.settings.scores_candidates

    @property
    def how(self) -> str:
        """How the widths were found, in words."""
        method, budget = self.settings.method, self.settings.budget
        if method == "given":
            return "narrowed to given widths"
        return f"{_METHODS[method]} under a budget of {budget}"

    @property
    def metric_of_test(self) -> Metric:
        """What is measured on the test images."""
        return next((network.metric for network in self.networks.values()), Classification.headline)

    @property
    def metric(self) -> str:
        """What the scores of candidates are: "accuracy", "loss" or "own"."""
        return self.settings.metric

    @property
    def training(self) -> str:
        """How the networks that the run compares were made, in words."""
        start = {"supernet": "the supernet's weights", "pretrained": "the model's own weights"}
        origin = start.get(self.settings.final_from)
        return "trained from scratch" if origin is None else f"fine-tuned from {origin}"

    @property
    def budget(self) -> Budget | None:
        """The budget in absolute counts; None before the space is known."""
        return None if self.space is None else self.settings.budget.resolve(self.space.reference)

    @property
    def evaluated(self) -> dict[str, Any]:
        """How many candidates were scored, how many of them stopped early, and the share of batches that took."""
        stopped = sum(not c.complete for c in self.evaluations)
        return {"evaluations": len(self.evaluations), "stopped": stopped, "effort": effort(self.evaluations)}

    @property
    def front(self) -> tuple[Candidate, ...]:
        """The candidates within the budget that no other beats in score at no more MACs."""
        budget = self.budget
        return () if budget is None else pareto_front(c for c in self.evaluations if budget.admits(c.cost))

    @property
    def best(self) -> Widths | None:
        """The widths that were trained or given, else the best scored so far."""
        if "searched" in self.networks:
            return self.networks["searched"].widths
        if self.settings.widths is not None:
            return self.settings.widths
        return self.front[-1].widths if self.front else None

    @property
    def whose(self) -> str:
        """What `best` are the widths of, in words."""
        if not self.searches:
            return "the network of the given widths" if self.settings.widths is not None else "the network found"
        return "the searched network" if "searched" in self.networks else "the best candidate so far"

    @property
    def uniform(self) -> Widths | None:
        """The Uniform baseline's widths under the run's budget."""
        if "uniform" in self.networks:
            return self.networks["uniform"].widths
        budget = self.settings.budget
        if self.space is None or not set(budget.limits) <= set(MEASURES.values()):
            return None  # a measure of the user's own, which only their code counts
        return self.space.uniform(budget)


def read_evidence(path: str | Path) -> Evidence:
    """Everything that the run directory `path` has to tell.

    Raises:
        RunError: it is no run directory, or a file in it is damaged.
    """
    folder = Path(path)
    settings = read_settings(folder)
    run = RunDirectory(folder, settings)
    space = _space(run)
    return Evidence(
        path=folder,
        settings=settings,
        space=space,
        result=read_result(folder) if (folder / "result.json").exists() else None,
        prior=None if space is None else _prior(run, space),
        evaluations=() if space is None else _evaluations(run, space),
        networks={} if space is None else _networks(run, space),
        curves=_curves(run),
        counts=_counts(run),
        seconds=run.seconds(),
        latencies=tuple(read_latencies(folder)),
    )


def _optional(run: RunDirectory, name: str) -> dict[str, Any] | None:
    return run.read(name) if run.file(name).exists() else None


def _space(run: RunDirectory) -> WidthSpace | None:
    document = _optional(run, "space.json")
    if document is None:
        return None
    try:
        layers = tuple(LayerTerms.from_dict(layer) for layer in document["layers"])
        return WidthSpace(
            groups=tuple(
                WidthGroup(g["name"], g["max_width"], g["unit"], tuple(g["choices"]), tuple(g["members"]))
                for g in document["groups"]
            ),
            macs_terms=_total(layer.macs for layer in layers),
            params_terms=_total(layer.params for layer in layers),
            fixed=tuple(FixedDimension(**dimension) for dimension in document["fixed"]),
            layers=layers,
            original=Cost(document["macs"], document["params"], document.get("others", {})),
            own_widths=tuple(document["original_widths"]) if "original_widths" in document else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RunError(
            f"{run.file('space.json')} is not of this version: repeat the run's `bcnet search` command, which brings "
            "it up to date and repeats nothing that is finished"
        ) from None


def _total(polynomials: Any) -> Polynomial:
    terms: dict[tuple[int, ...], int] = {}
    for polynomial in polynomials:
        for groups, value in polynomial.terms.items():
            terms[groups] = terms.get(groups, 0) + value
    return Polynomial(dict(sorted(terms.items())))


def _prior(run: RunDirectory, space: WidthSpace) -> Prior | None:
    document = _optional(run, "prior.json")
    return None if document is None else Prior.from_dict(document, space)


def _evaluations(run: RunDirectory, space: WidthSpace) -> tuple[Candidate, ...]:
    file = run.file("evaluations.sqlite")
    if not file.exists() or not file.stat().st_size:
        return ()
    with EvaluationStore(file, space, run.settings.fingerprint()) as store:
        return store.evaluations


def _networks(run: RunDirectory, space: WidthSpace) -> dict[str, Network]:
    networks = {}
    metric = headline_of(run.read("space.json"))
    for key, label in NETWORKS.items():
        file = run.file(f"{_FILES[key]}.safetensors")
        if file.exists():
            _, state = read_tensors(file, run.identity(label))
            widths = tuple(state["widths"])
            cost = dataclasses.replace(space.cost(widths), others=state.get("others", {}))
            value, low, high = _measured(state, metric)
            networks[key] = Network(label, widths, cost, value, state["count"], metric, low, high)
    return networks


def _measured(state: Mapping[str, Any], metric: Metric) -> tuple[float, float, float]:
    """A network's value of the metric with its 95 % interval: what the number of test images leaves to chance."""
    if "top1" in state:
        count = state["count"]
        value = 100 * state["top1"]
        right = round(value / 100 * count)
        return value, *accuracy_interval(np.repeat([100.0, 0.0], [right, count - right]))
    value, error = state["figures"][metric.key], state["errors"][metric.key]
    return value, value - 1.96 * error, value + 1.96 * error


def _curves(run: RunDirectory) -> dict[str, Curve]:
    files = {"supernet": ("records", "records", run.settings.supernet.epochs)}
    files |= {
        label: (f"{_FILES[key]}_losses", f"{label} losses", run.settings.final.epochs)
        for key, label in NETWORKS.items()
    }
    curves = {}
    for stage, (name, owner, epochs) in files.items():
        file = run.file(f"{name}.safetensors")
        if file.exists():
            records = LossRecords.load(file, run.identity(owner))
            curves[stage] = Curve.of(records.steps, records.losses, epochs, complete=True)
        elif (unfinished := _unfinished(run, stage, epochs)) is not None:
            curves[stage] = unfinished
    return curves


def _unfinished(run: RunDirectory, stage: str, epochs: int) -> Curve | None:
    """The losses in the checkpoint of a stage that goes on, or was stopped."""
    found = read_latest(run.path / "checkpoints" / f"{stage}.safetensors", run.identity(stage))
    if found is None:
        return None
    tensors, state = found
    steps, losses = (tensors[f"records:{part}"].numpy() for part in ("steps", "losses"))
    if len(steps) == 0:
        return None
    return Curve.of(steps, losses, epochs * state["step"] / state["total"], complete=False)


def _counts(run: RunDirectory) -> tuple[IntArray, ...]:
    file = run.file("counts.safetensors")
    return tuple(ChannelCounts.load(file, run.identity("counts"))) if file.exists() else ()


def expected_macs(prior: Prior) -> float:
    """Mean MACs of widths drawn from the prior, group by group independently (Eq. 14)."""
    total = 0.0
    for groups, value in prior.space.macs_terms.terms.items():
        term = float(value)
        for group in set(groups):
            choices = np.array(prior.space.groups[group].choices, dtype=np.float64)
            term *= float(prior.rows[group] @ choices ** groups.count(group))
        total += term
    return total
