"""The content of `result.json`, written at the end of a run. Importing this module loads no torch.

Accuracies are in percent; scores are in units of `search.metric`. Files are validated when read, since a checksum does
not prove who wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, NonNegativeInt, field_validator, model_validator

from bcnet.measurement import Count, Measurement, Metric
from bcnet.run.reliability import Reliability

Which = Literal["original", "uniform", "searched"]
NETWORKS: Mapping[Which, str] = {"original": "original", "uniform": "Uniform", "searched": "searched"}
"""Key of each network in `result.json`, and the stage that trains it, whose name is shown to people."""

Number = int | FiniteFloat


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class NetworkResult(_Part):
    """One of the networks: widths, costs, and test results.

    `macs_ratio` is relative to the original. `others` has the costs in further measures. `by_class` maps each class
    number to its number of test images and the mean of the headline metric.
    """

    widths: tuple[Count, ...]
    macs: NonNegativeInt
    macs_ratio: FiniteFloat
    params: NonNegativeInt
    test: dict[str, FiniteFloat]
    test_errors: dict[str, FiniteFloat]
    test_images: Count
    by_class: dict[NonNegativeInt, tuple[Count, FiniteFloat]]
    others: dict[str, Number] = {}

    @property
    def measurement(self) -> Measurement:
        """Return the test figures."""
        return Measurement(self.test, self.test_errors, self.test_images, self.by_class)


class TaskResult(_Part):
    """The task and its headline metric."""

    name: str
    headline: Metric

    @field_validator("headline")
    @classmethod
    def _can_be_written(cls, headline: Metric) -> Metric:
        if headline.digits < 0:
            raise ValueError(f"the digits of a metric must be 0 or more; got {headline.digits}")
        return headline


class BudgetResult(_Part):
    """Limits as counts, and the budget as given."""

    macs: Number | None
    params: Number | None
    given: str
    others: dict[str, Number] = {}


class ScoredWidths(_Part):
    """Widths that need no search, with the search's score; `fresh_score` if they were scored again."""

    name: str
    widths: tuple[Count, ...]
    score: FiniteFloat
    macs_ratio: FiniteFloat
    fresh_score: FiniteFloat | None = None


class RescoredWidths(_Part):
    """One of the best candidates, scored again on fresh images."""

    widths: tuple[Count, ...]
    score: FiniteFloat
    fresh_score: FiniteFloat


class SearchResults(_Part):
    """Scores of the candidates; `fresh` scores are on images not used in the search."""

    metric: Literal["accuracy", "loss", "own"]
    score: FiniteFloat
    fresh_score: FiniteFloat
    fresh_interval: tuple[float, float]
    fresh_images: NonNegativeInt
    finalist_epochs: NonNegativeInt | None = None
    evaluations: Count
    rescored: tuple[RescoredWidths, ...] = ()
    heuristics: tuple[ScoredWidths, ...] = ()
    notes: tuple[str, ...] = ()


class GroupWidths(_Part):
    """Widths of one group."""

    name: str
    max_width: Count
    uniform: Count
    searched: Count


class Ended(_Part):
    """Epochs of a training that early stopping ended, and the best epoch."""

    epochs: Count
    best: Count


class OwnFunctions(_Part):
    """Names of the user's loss and score."""

    loss: str | None = None
    score: str | None = None


class DeviceResult(_Part):
    """The machine."""

    name: str
    threads: Count | None
    processes: Count = 1


class RunResult(_Part):
    """Result of a run in plain numbers. Equal runs have equal results, except for `seconds`.

    `networks` holds "original", "uniform" and "searched". `search` is None if no candidates were scored, `reliability`
    if it cannot be estimated, and `measured_latency` (ns, by network) without a latency limit or with a prediction for
    another machine.

    Example: `bcnet.Run.open("runs/half").result.networks["searched"].test["top1"]`.
    """

    format: int = 1
    model: str
    data: str
    class_names: tuple[str, ...]
    method: str
    origin: str
    task: TaskResult
    budget: BudgetResult
    widths: dict[str, Count]
    networks: dict[Which, NetworkResult]
    search: SearchResults | None
    groups: tuple[GroupWidths, ...]
    measured_latency: dict[str, Number] | None = None
    reliability: Reliability | None = None
    epochs: dict[str, Count]
    skipped_steps: dict[str, NonNegativeInt]
    stopped_early: dict[str, Ended] = {}
    start: str = ""
    own: OwnFunctions = OwnFunctions()
    seed: NonNegativeInt
    device: DeviceResult
    versions: dict[str, str]
    seconds: dict[str, FiniteFloat]

    @model_validator(mode="after")
    def _check_networks(self) -> RunResult:
        """Check that all three networks exist and have the task's figures."""
        for name in NETWORKS:
            if name not in self.networks or self.headline.key not in self.networks[name].test:
                raise ValueError(f"'networks' has {name!r}, whose 'test' has the headline {self.headline.key!r}")
        return self

    @property
    def headline(self) -> Metric:
        """Headline metric of the task."""
        return self.task.headline

    @property
    def title(self) -> str:
        """Title for tables: which network was searched."""
        return f"{self.model} on {self.data}, budget {self.budget.given}"

    @property
    def origin_note(self) -> str:
        """Return a sentence on the origin of the widths, for a run that scored no candidates."""
        return self.origin or f"The widths were found by the method {self.method}."

    @property
    def training_notes(self) -> str:
        """Return sentences on anything unusual in the trainings; "" if there is nothing."""
        # Agreement in R^2 is 0 for a constant output.
        ruined = [name for name in ("uniform", "searched") if self.networks[name].test.get("agreement", 100.0) <= 0]
        ends = [f"{name} after epoch {end.epochs} (best: {end.best})" for name, end in self.stopped_early.items()]
        skipped = [f"{name} {count}" for name, count in self.skipped_steps.items() if count]
        notes = []
        if ruined:
            advice = "lower the learning rate, or train for longer"
            notes.append(f"No better than a constant output: {', '.join(ruined)}; {advice}.")
        if ends:
            notes.append(f"Early stopping ended the training of {', '.join(ends)}.")
        if skipped:
            notes.append(f"Bad training steps left out: {', '.join(skipped)}.")
        return " ".join(notes)

    def value(self, name: Which) -> float:
        """Return a network's value of the headline metric."""
        return self.networks[name].test[self.headline.key]

    def to_document(self) -> dict[str, Any]:
        """Return plain data for files."""
        return self.model_dump(mode="json")
