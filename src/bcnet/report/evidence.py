"""Evidence: the content of a run directory, read without changing it.

An unfinished run has some of it; missing parts are None or empty, and the report says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bcnet.costs import IntArray, Measure
from bcnet.export import read_latencies
from bcnet.files.tensors import read_latest
from bcnet.methods import Given
from bcnet.prior import Prior
from bcnet.run.finished import NETWORK_FILES
from bcnet.run.result import NETWORKS, RunResult
from bcnet.run.run import Network, Run
from bcnet.run.settings import Settings
from bcnet.searchers import Candidate
from bcnet.searchers.result import pareto_front
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.tasks import Metric
from bcnet.train import LossRecords

_POINTS = 200  # about one per distinguishable pixel of a chart


@dataclass(frozen=True)
class Curve:
    """A training loss in bins of consecutive steps, shape `(bins,)` each.

    `epoch` is the end of a bin, `mean` its mean loss, `low` and `high` its smallest and largest. `complete` is True
    once the stage has ended.

    """

    epoch: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    complete: bool

    @classmethod
    def of(cls, steps: npt.ArrayLike, losses: npt.ArrayLike, epochs: float, *, complete: bool) -> Curve:
        """Return the curve of records `(n,)` at ascending `steps`, n >= 1, that cover `epochs`."""
        times = np.asarray(steps)
        values = np.asarray(losses, dtype=np.float64)
        length = int(times[-1]) + 1
        edges = np.unique(np.linspace(0, length, min(_POINTS, length) + 1).round().astype(np.int64))
        places = np.searchsorted(times, edges)
        parts = [(end, values[a:b]) for end, a, b in zip(edges[1:], places, places[1:], strict=False) if b > a]
        return cls(
            epoch=np.array([end for end, _ in parts]) * epochs / length,
            mean=np.array([part.mean() for _, part in parts]),
            low=np.array([part.min() for _, part in parts]),
            high=np.array([part.max() for _, part in parts]),
            complete=complete,
        )

    def rows(self, stage: str) -> list[dict[str, Any]]:
        """Return one row per bin, for a chart."""
        columns = zip(self.epoch, self.mean, self.low, self.high, strict=True)
        return [
            {"stage": stage, "epoch": round(e, 4), "loss": round(m, 5), "low": round(lo, 5), "high": round(hi, 5)}
            for e, m, lo, hi in columns
        ]


@dataclass(frozen=True)
class Evidence:
    """Content of a run directory so far.

    `space` has groups, layers and costs, but no layouts. `evaluations` are in order. `curves` are training losses by
    stage. `counts` are how often each channel of each group was trained. `seconds` is the time by stage. `latencies`
    are the records of `measure_latency`. `examples` are columns and rows of test images (`bcnet.stages.examples`).
    `class_names` are names or numbers of the classes.
    """

    path: Path
    settings: Settings
    space: WidthSpace | None = None
    result: RunResult | None = None
    prior: Prior | None = None
    evaluations: tuple[Candidate, ...] = ()
    networks: Mapping[str, Network] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    counts: tuple[IntArray, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    latencies: tuple[Mapping[str, Any], ...] = ()
    given: Budget | None = None
    examples: Mapping[str, Any] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Model and data for people, without local folders."""
        kind, colon, place = self.settings.data.partition(":")
        local = colon and kind != "hf"
        return f"{self.settings.model} on {place.rstrip('/').rpartition('/')[2] if local else self.settings.data}"

    @property
    def searches(self) -> bool:
        """Return whether the widths are the best of scored candidates, not given or a baseline's."""
        return self.settings.method.scores_candidates

    @property
    def how(self) -> str:
        """Description of the search that found the widths."""
        method = self.settings.method
        if isinstance(method, Given):
            return method.narrowed
        return f"{method.narrowed} under a budget of {self.settings.budget}"

    @property
    def measures(self) -> dict[str, Measure]:
        """Measures that the budget limits besides MACs and parameters, by name."""
        return {measure.name: measure for measure in self.settings.budget.others}

    @property
    def metric_of_test(self) -> Metric:
        """Test metric of the trained networks."""
        return next(iter(self.networks.values())).metric

    @property
    def metric(self) -> str:
        """Kind of the candidates' scores: "accuracy", "loss" or "own"."""
        return self.settings.metric

    @property
    def training_words(self) -> str:
        """Description of the training of the compared networks."""
        start = {
            "supernet": "the supernet's weights",
            "pretrained": "the model's own weights",
            "original": "the trained original's weights",
        }
        origin = start.get(self.settings.start)
        return "trained from scratch" if origin is None else f"fine-tuned from {origin}"

    @property
    def budget(self) -> Budget | None:
        """Budget in absolute counts; None before the space is known."""
        return None if self.space is None else self.settings.budget.resolve(self.space.reference)

    @property
    def front(self) -> tuple[Candidate, ...]:
        """Feasible candidates not dominated in score and MACs."""
        budget = self.budget
        if budget is None:
            return ()
        return pareto_front(c for c in self.evaluations if budget.admits(c.cost))

    @property
    def best(self) -> Widths | None:
        """Trained or given widths, else the best scored so far."""
        if "searched" in self.networks:
            return self.networks["searched"].widths
        if isinstance(self.settings.method, Given) and isinstance(self.settings.method.values, tuple):
            return self.settings.method.values
        return self.front[-1].widths if self.front else None

    @property
    def whose(self) -> str:
        """Owner of the `best` widths, in words."""
        if not self.searches:
            return "the network of the given widths" if isinstance(self.settings.method, Given) else "the network found"
        return "the searched network" if "searched" in self.networks else "the best candidate so far"

    @property
    def uniform(self) -> Widths | None:
        """Uniform widths under the run's budget."""
        if "uniform" in self.networks:
            return self.networks["uniform"].widths
        budget = self.given or self.settings.budget
        if self.space is None or not all(measure.countable for measure in budget.limits):
            return None  # a custom measure needs the user's code
        return self.space.uniform(budget)


def read_evidence(path: str | os.PathLike[str]) -> Evidence:
    """Return all evidence in the run directory `path`.

    Raises:
        RunError: not a run directory, or a corrupt file.
    """
    run = Run.open(path)
    return Evidence(
        path=run.path,
        settings=run.settings,
        space=run.space,
        result=run.result,
        given=run.budget,
        prior=run.prior,
        evaluations=run.evaluations,
        networks=run.networks,
        curves=_curves(run),
        counts=run.counts,
        seconds=run.seconds,
        latencies=tuple(read_latencies(run.path)),
        examples=run.examples,
        class_names=run.class_names,
    )


def _curves(run: Run) -> dict[str, Curve]:
    files = {"supernet": ("records", "records", run.settings.supernet_recipe.epochs)}
    files |= {
        label: (f"{Path(NETWORK_FILES[key]).stem}_losses", f"{label} losses", run.settings.training.epochs)
        for key, label in NETWORKS.items()
    }
    curves = {}
    for stage, (name, owner, epochs) in files.items():
        file = run.path / f"{name}.safetensors"
        if file.exists():
            records = LossRecords.load(file, run.identity(owner))
            if len(records) > 0:  # an imitated original has none
                curves[stage] = Curve.of(records.steps, records.losses, epochs, complete=True)
        elif (unfinished := _unfinished_curve(run, stage, epochs)) is not None:
            curves[stage] = unfinished
    return curves


def _unfinished_curve(run: Run, stage: str, epochs: int) -> Curve | None:
    """Return the losses in the checkpoint of a running or interrupted stage."""
    found = read_latest(run.path / "checkpoints" / f"{stage}.safetensors", run.identity(stage))
    if found is None:
        return None
    tensors, state = found
    steps, losses = (tensors[f"records:{part}"].numpy() for part in ("steps", "losses"))
    if len(steps) == 0:
        return None
    return Curve.of(steps, losses, epochs * state["step"] / state["total"], complete=False)


def expected_macs(prior: Prior) -> float:
    """Return the mean MACs of widths drawn from the prior, independently for each group (Eq. 14)."""
    total = 0.0
    for groups, value in prior.space.macs_terms.terms.items():
        term = float(value)
        for group in set(groups):
            choices = np.array(prior.space.groups[group].choices, dtype=np.float64)
            term *= float(prior.rows[group] @ choices ** groups.count(group))
        total += term
    return total
