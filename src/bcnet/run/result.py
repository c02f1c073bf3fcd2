"""The content of `result.json`: written by a run's last step, read by all others. Importing this loads no torch.

Accuracies are percent, scores are of `search.metric`. What is read is checked, since a checksum does not say who wrote
a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, NonNegativeInt, field_validator, model_validator

from bcnet.measurement import Count, Measurement, Metric
from bcnet.run.reliability import Reliability

Which = Literal["original", "uniform", "searched"]
NETWORKS: Mapping[Which, str] = {"original": "original", "uniform": "Uniform", "searched": "searched"}
"""Key of each network in `result.json`, and the stage that trains it, which is also what people read."""

Number = int | FiniteFloat


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class NetworkResult(_Part):
    """One of the networks: its widths, what it costs, and what it did on the test images.

    `macs_ratio` is over the original's. `others` has the costs in further measures. `by_class` has for each class
    number how many test images there were, and the mean of the headline.
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
        """Figures on the test images."""
        return Measurement(self.test, self.test_errors, self.test_images, self.by_class)


class TaskResult(_Part):
    """The task, and the metric that people read first."""

    name: str
    headline: Metric

    @field_validator("headline")
    @classmethod
    def _can_be_written(cls, headline: Metric) -> Metric:
        if headline.digits < 0:
            raise ValueError(f"digits that are written are none or more; got {headline.digits}")
        return headline


class BudgetResult(_Part):
    """The limits as counts, and the budget as it was given."""

    macs: Number | None
    params: Number | None
    given: str
    others: dict[str, Number] = {}


class ScoredWidths(_Part):
    """Widths that need no search, as the search scored them; `fresh_score` where they were scored again."""

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
    """The scores of the candidates; those that are `fresh` are of images that took no part in the search."""

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
    """The widths of one group."""

    name: str
    max_width: Count
    uniform: Count
    searched: Count


class Ended(_Part):
    """The epochs that a training had when early stopping ended it, and the best of them."""

    epochs: Count
    best: Count


class OwnFunctions(_Part):
    """Names of the user's own loss and score."""

    loss: str | None = None
    score: str | None = None


class DeviceResult(_Part):
    """The machine."""

    name: str
    threads: Count | None
    processes: Count = 1


class RunResult(_Part):
    """The result of a run, in plain numbers. Equal runs have equal results, but for `seconds`.

    `networks` are the "original", "uniform" and "searched" ones. `search` is None where no candidates were scored,
    `reliability` where their scores do not say, and `measured_latency` (ns, by network) where it was not limited, or
    is predicted for another machine.

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
        """All three are there, and each says what its task measures."""
        for name in NETWORKS:
            if name not in self.networks or self.headline.key not in self.networks[name].test:
                raise ValueError(f"'networks' has {name!r}, whose 'test' has the headline {self.headline.key!r}")
        return self

    @property
    def headline(self) -> Metric:
        """The metric that people read first."""
        return self.task.headline

    @property
    def title(self) -> str:
        """Return what was searched, for the head of a table."""
        return f"{self.model} on {self.data}, budget {self.budget.given}"

    @property
    def origin_note(self) -> str:
        """A sentence on where the widths come from, of a run that scored no candidates."""
        return self.origin or f"The widths were found by the method {self.method}."

    @property
    def training_notes(self) -> str:
        """Sentences on what was unusual about the trainings; nothing where all was as usual."""
        # Agreement in R^2 is 0 where a constant output would do as well.
        ruined = [name for name in ("uniform", "searched") if self.networks[name].test.get("agreement", 100.0) <= 0]
        ends = [f"{name} after epoch {end.epochs} (best: {end.best})" for name, end in self.stopped_early.items()]
        skipped = [f"{name} {count}" for name, count in self.skipped_steps.items() if count]
        notes = (
            f"No better than a constant output: {', '.join(ruined)}; lower the learning rate, or train for longer."
            if ruined
            else "",
            f"Early stopping ended the training of {', '.join(ends)}." if ends else "",
            f"Bad training steps left out: {', '.join(skipped)}." if skipped else "",
        )
        return " ".join(filter(None, notes))

    def value(self, name: Which) -> float:
        """Return what one of the networks did, in the metric that people read first."""
        return self.networks[name].test[self.headline.key]

    def to_document(self) -> dict[str, Any]:
        """Return plain data, for files."""
        return self.model_dump(mode="json")
