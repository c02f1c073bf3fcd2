"""The whole search: run directories, stages, resume."""

from bcnet.pipeline.again import evolve, retrain
from bcnet.pipeline.baseline import BASELINES, baseline
from bcnet.pipeline.callbacks import Callbacks
from bcnet.pipeline.course import FoundWidths, SearchOutcome, TrainedSupernet
from bcnet.pipeline.finished import FinishedRun, load
from bcnet.pipeline.job import search, train_supernet
from bcnet.pipeline.progress import Reporter, Together
from bcnet.pipeline.recipes import default_recipe
from bcnet.pipeline.replay import replay
from bcnet.pipeline.run_directory import RunDirectory
from bcnet.pipeline.settings import Settings
from bcnet.pipeline.tensorboard import TensorBoard
from bcnet.pipeline.widths import resolve_widths

__all__ = [
    "BASELINES",
    "Callbacks",
    "FinishedRun",
    "FoundWidths",
    "Reporter",
    "RunDirectory",
    "SearchOutcome",
    "Settings",
    "TensorBoard",
    "Together",
    "TrainedSupernet",
    "baseline",
    "default_recipe",
    "evolve",
    "load",
    "replay",
    "resolve_widths",
    "retrain",
    "search",
    "train_supernet",
]
