"""`result.json` as it is read: what its readers rely on, checked, since a checksum does not say who wrote a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, FiniteFloat, NonNegativeInt, ValidationError, model_validator

from bcnet.errors import RunError
from bcnet.run.directory import RunDirectory, read_settings
from bcnet.searchers import Metric
from bcnet.train.recipe import Count, describe


class _Network(BaseModel):
    widths: tuple[Count, ...]
    macs: NonNegativeInt
    macs_ratio: FiniteFloat
    params: NonNegativeInt
    test: dict[str, FiniteFloat]
    test_errors: dict[str, FiniteFloat]
    test_images: Count
    by_class: dict[NonNegativeInt, tuple[Count, FiniteFloat]]
    others: dict[str, FiniteFloat] = {}


class _Headline(BaseModel):
    key: str
    name: str
    unit: str
    digits: NonNegativeInt
    higher: bool
    share: bool
    meaning: str


class _Task(BaseModel):
    name: str
    headline: _Headline


class _Networks(BaseModel):
    original: _Network
    uniform: _Network
    searched: _Network


class _Heuristic(BaseModel):
    name: str
    score: FiniteFloat
    macs_ratio: FiniteFloat
    fresh_score: FiniteFloat | None = None


class _Search(BaseModel):
    metric: Metric | Literal["own"]
    score: FiniteFloat
    fresh_score: FiniteFloat
    fresh_interval: tuple[float, float]
    fresh_images: NonNegativeInt
    finalist_epochs: NonNegativeInt | None = None
    evaluations: Count
    heuristics: tuple[_Heuristic, ...] = ()


class _Group(BaseModel):
    name: str
    max_width: Count
    uniform: Count
    searched: Count


class _Budget(BaseModel):
    given: str


class _Device(BaseModel):
    name: str
    threads: Count


class _Reliability(BaseModel):
    verdict: str
    text: str


class _Result(BaseModel):
    model: str
    data: str
    class_names: tuple[str, ...]
    method: str
    origin: str
    task: _Task
    budget: _Budget
    widths: dict[str, Count]
    networks: _Networks
    search: _Search | None
    groups: tuple[_Group, ...]
    reliability: _Reliability | None = None
    measured_latency: dict[str, FiniteFloat] | None = None
    epochs: dict[str, Count]
    skipped_steps: dict[str, NonNegativeInt]
    stopped_early: dict[str, dict[str, Count]] = {}
    seed: NonNegativeInt
    device: _Device
    versions: dict[str, str]
    seconds: dict[str, FiniteFloat]

    @model_validator(mode="after")
    def _check_metrics(self) -> _Result:
        """Every network says what its task measures."""
        for network in (self.networks.original, self.networks.uniform, self.networks.searched):
            if self.task.headline.key not in network.test:
                raise ValueError(f"'test' has the headline {self.task.headline.key!r} for every network")
        return self


def read_result(run: Path) -> dict[str, Any]:
    """The content of a finished run's `result.json`.

    Raises:
        RunError: no run, one that is not finished, or a result that is damaged, of another run or another version.
    """
    settings = read_settings(run)
    if not (run / "result.json").exists():
        raise RunError(f"run directory {run} has no result yet: repeat its `bcnet search` command to finish it")
    document = RunDirectory(run, settings).read("result.json")
    try:
        _Result.model_validate(document)
    except ValidationError as error:
        raise RunError(
            f"{run / 'result.json'} is no result of this version: {describe(error)}: repeat the `bcnet search` command "
            "in a new run directory"
        ) from None
    return document
