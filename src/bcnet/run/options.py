"""The settings as keyword arguments, for type checkers: names and types are those of `Settings`, and a test says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from bcnet.machine.defaults import Layout
from bcnet.progress.base import Reporter
from bcnet.run.callables import OfWidths
from bcnet.run.effort import EffortName
from bcnet.run.presets import PresetName
from bcnet.run.pretrained import Weights
from bcnet.run.settings import BaselineName, FinalFrom, FirstGeneration, ScorerName, StrategyName
from bcnet.searchers import Metric, PerImage, Searcher
from bcnet.searchers.evolution import Tournament
from bcnet.tasks import Loss, Task
from bcnet.train import Recipe


class SearchOptions(TypedDict, total=False):
    """Settings of prior, scores, search and finalists."""

    keep_records: int | None
    records_since: float
    effective_widths: float
    tightened: bool
    score_batch_size: int | None
    searcher: str | Searcher
    population: int
    generations: int
    parents: int
    macs_from: float
    first_generation: FirstGeneration
    tournament: Tournament
    reach: float
    rescored: int


class EvolveOptions(SearchOptions, total=False):
    """What `evolve` may change."""

    score: Metric


class RunOptions(SearchOptions, total=False):
    """What a run is made of, beside the named arguments of every call."""

    num_choices: int
    min_ratio: float
    multiple_of: int | Literal["auto"] | dict[str, int]
    ignore: Sequence[str]
    only: Sequence[str]
    supernet_width: float
    strategy: StrategyName
    pairs: Literal["auto", "on", "off"]
    layout: Layout
    validation_fraction: float
    fresh_fraction: float
    search_seed: int | None
    baseline: BaselineName | None
    balance_exponent: float
    scorer: ScorerName
    random_networks: int
    random_epochs: int | None
    random_continued: bool
    finalist_epochs: int | None
    final_seed: int | None
    threads: int | None
    device: str | None


class Options(RunOptions, total=False):
    """Settings that `search` takes."""

    seed: int
    final_from: FinalFrom | None
    examples: int


class Arguments(Options, total=False):
    """What `train_supernet` and `baseline` hand on to `search`: its settings, and its other arguments."""

    recipe: Recipe | str | None
    supernet_epochs: int | None
    changes: Mapping[str, Any] | None
    image_size: int | None
    pretrained: Weights | None
    task: Task | str | None
    loss: Loss | None
    effort: EffortName | None
    preset: PresetName | None
    score: Metric | PerImage | None
    score_of_widths: OfWidths | None
    tags: Mapping[str, str] | None


class BaselineArguments(Arguments, total=False):
    """What `baseline` hands on as well."""

    progress: bool
    reporter: Reporter | None
    checkpoint_seconds: float
    take_from: Sequence[str | Path]
