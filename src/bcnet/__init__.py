"""Channel width search for convolutional networks (BCNet, CVPR 2021).

    import bcnet

    result = bcnet.search(model, "cifar10", bcnet.Budget(macs=0.5), "runs/half")
    result.network  # a plain nn.Module with narrower layers, trained

Names are imported when first used, so that `import bcnet` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bcnet.errors import BCNetError

if TYPE_CHECKING:
    from bcnet.api.narrow import narrow
    from bcnet.api.outcome import SearchOutcome
    from bcnet.api.search import search
    from bcnet.costs import Arena, Budget, Flash, Latency, Measure, Memory, Size
    from bcnet.data import DataSet, Loaders
    from bcnet.export import export_run, measure_latency
    from bcnet.latency import calibrate
    from bcnet.methods import AutoSlim, Balanced, BCNet, Given, Method, Pruned, Random, Trainings, Uniform
    from bcnet.progress.base import Reporter
    from bcnet.progress.tensorboard import TensorBoard
    from bcnet.report import write_comparison, write_report
    from bcnet.run.finished import load
    from bcnet.run.run import Run
    from bcnet.run.settings import RunOptions, SpaceSettings
    from bcnet.searchers import Evolution, ModelBased, Searcher, Study
    from bcnet.space import WidthSpace, trace
    from bcnet.stages.base import Stage
    from bcnet.supernet import Supernet
    from bcnet.tasks import Task
    from bcnet.train import Recipe, SupernetSteps

_HOMES = {
    "bcnet.api.narrow": ["narrow"],
    "bcnet.api.outcome": ["SearchOutcome"],
    "bcnet.api.search": ["search"],
    "bcnet.costs": ["Arena", "Budget", "Flash", "Latency", "Measure", "Memory", "Size"],
    "bcnet.data": ["DataSet", "Loaders"],
    "bcnet.export": ["export_run", "measure_latency"],
    "bcnet.latency": ["calibrate"],
    "bcnet.methods": ["AutoSlim", "BCNet", "Balanced", "Given", "Method", "Pruned", "Random", "Trainings", "Uniform"],
    "bcnet.progress.base": ["Reporter"],
    "bcnet.progress.tensorboard": ["TensorBoard"],
    "bcnet.report": ["write_comparison", "write_report"],
    "bcnet.run.finished": ["load"],
    "bcnet.run.run": ["Run"],
    "bcnet.run.settings": ["RunOptions", "SpaceSettings"],
    "bcnet.searchers": ["Evolution", "ModelBased", "Searcher", "Study"],
    "bcnet.space": ["WidthSpace", "trace"],
    "bcnet.stages.base": ["Stage"],
    "bcnet.supernet": ["Supernet"],
    "bcnet.tasks": ["Task"],
    "bcnet.train": ["Recipe", "SupernetSteps"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_ROOMS = (
    *("costs", "data", "distributed", "export", "latency", "methods", "models", "prior"),
    *("report", "searchers", "space", "supernet", "tasks", "tflite", "train"),
)
"""Subpackages that hold further names, reached as attributes: `bcnet.supernet.build`, for instance."""

__all__ = [
    "Arena",
    "AutoSlim",
    "BCNet",
    "BCNetError",
    "Balanced",
    "Budget",
    "DataSet",
    "Evolution",
    "Flash",
    "Given",
    "Latency",
    "Loaders",
    "Measure",
    "Memory",
    "Method",
    "ModelBased",
    "Pruned",
    "Random",
    "Recipe",
    "Reporter",
    "Run",
    "RunOptions",
    "SearchOutcome",
    "Searcher",
    "Size",
    "SpaceSettings",
    "Stage",
    "Study",
    "Supernet",
    "SupernetSteps",
    "Task",
    "TensorBoard",
    "Trainings",
    "Uniform",
    "WidthSpace",
    "calibrate",
    "export_run",
    "load",
    "measure_latency",
    "narrow",
    "search",
    "trace",
    "write_comparison",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("bcnet")
    if name in _ROOMS:
        return import_module(f"bcnet.{name}")
    if name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'bcnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
