"""Channel width search for convolutional networks (BCNet, CVPR 2021).

    import bcnet

    result = bcnet.search(model, "cifar10", budget=bcnet.Budget(macs=0.5), run_dir="runs/half")
    result.network  # a plain nn.Module with narrower layers, trained

Names are imported when first used, so that `import bcnet` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bcnet.errors import BCNetError

if TYPE_CHECKING:
    from bcnet import data, distributed, models
    from bcnet.api import baseline, evolve, find_network, find_widths, retrain, search, train_supernet, train_widths
    from bcnet.api.outcomes import FoundWidths, SearchOutcome, TrainedSupernet
    from bcnet.costs import Budget, Cost, Measure, Memory, Size
    from bcnet.data import DataSet, Loaders
    from bcnet.export import Export, Latency, export_run, measure_latency, push_run
    from bcnet.latency import calibrate
    from bcnet.prior import Prior, learn_prior
    from bcnet.progress.base import Reporter, Together
    from bcnet.progress.tensorboard import TensorBoard
    from bcnet.report import write_comparison, write_report
    from bcnet.run.finished import FinishedRun, load
    from bcnet.run.run import Run
    from bcnet.run.status import Status, read_status
    from bcnet.searchers import (
        Candidate,
        EvaluationStore,
        Evolution,
        Greedy,
        PriorOnly,
        Random,
        Searcher,
        SearchResult,
        SupernetEvaluator,
        search_widths,
    )
    from bcnet.space import Side, WidthGroup, WidthSpace
    from bcnet.stages.base import Stage
    from bcnet.stages.final import TrainedNetwork
    from bcnet.supernet import Supernet, build, describe, rebuild, recalibrate
    from bcnet.tasks import Metric, Task
    from bcnet.train import Recipe, SupernetSteps, load_recipe

_HOMES = {
    "bcnet.run.finished": ["FinishedRun", "load"],
    "bcnet.stages.base": ["Stage"],
    "bcnet.stages.final": ["TrainedNetwork"],
    "bcnet.api.outcomes": ["FoundWidths", "SearchOutcome", "TrainedSupernet"],
    "bcnet.progress.base": ["Reporter", "Together"],
    "bcnet.progress.tensorboard": ["TensorBoard"],
    "bcnet.run.run": ["Run"],
    "bcnet.run.status": ["Status", "read_status"],
    "bcnet.prior": ["Prior", "learn_prior"],
    "bcnet.api": [
        "baseline",
        "evolve",
        "find_network",
        "find_widths",
        "retrain",
        "search",
        "train_supernet",
        "train_widths",
    ],
    "bcnet.report": ["write_comparison", "write_report"],
    "bcnet.data": ["DataSet", "Loaders"],
    "bcnet.export": ["Export", "Latency", "export_run", "measure_latency", "push_run"],
    "bcnet.searchers": [
        "Candidate",
        "EvaluationStore",
        "Evolution",
        "Greedy",
        "PriorOnly",
        "Random",
        "SearchResult",
        "Searcher",
        "SupernetEvaluator",
        "search_widths",
    ],
    "bcnet.latency": ["calibrate"],
    "bcnet.costs": ["Budget", "Cost", "Measure", "Memory", "Size"],
    "bcnet.space": ["Side", "WidthGroup", "WidthSpace"],
    "bcnet.supernet": ["Supernet", "build", "describe", "rebuild", "recalibrate"],
    "bcnet.tasks": ["Metric", "Task"],
    "bcnet.train": ["Recipe", "SupernetSteps", "load_recipe"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BCNetError",
    "Budget",
    "Candidate",
    "Cost",
    "DataSet",
    "EvaluationStore",
    "Evolution",
    "Export",
    "FinishedRun",
    "FoundWidths",
    "Greedy",
    "Latency",
    "Loaders",
    "Measure",
    "Memory",
    "Metric",
    "Prior",
    "PriorOnly",
    "Random",
    "Recipe",
    "Reporter",
    "Run",
    "SearchOutcome",
    "SearchResult",
    "Searcher",
    "Side",
    "Size",
    "Stage",
    "Status",
    "Supernet",
    "SupernetEvaluator",
    "SupernetSteps",
    "Task",
    "TensorBoard",
    "Together",
    "TrainedNetwork",
    "TrainedSupernet",
    "WidthGroup",
    "WidthSpace",
    "baseline",
    "build",
    "calibrate",
    "data",
    "describe",
    "distributed",
    "evolve",
    "export_run",
    "find_network",
    "find_widths",
    "learn_prior",
    "load",
    "load_recipe",
    "measure_latency",
    "models",
    "push_run",
    "read_status",
    "rebuild",
    "recalibrate",
    "retrain",
    "search",
    "search_widths",
    "train_supernet",
    "train_widths",
    "write_comparison",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("bcnet")
    if name in ("costs", "data", "distributed", "models", "tasks"):
        return import_module(f"bcnet.{name}")
    if name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'bcnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
