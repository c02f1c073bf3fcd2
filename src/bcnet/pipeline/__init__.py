"""The whole search: run directories, stages, resume, and the report at the end."""

from bcnet.pipeline.finished import FinishedRun, load
from bcnet.pipeline.job import SearchOutcome, search
from bcnet.pipeline.progress import Reporter, Together
from bcnet.pipeline.replay import replay
from bcnet.pipeline.run_directory import RunDirectory
from bcnet.pipeline.settings import Settings, default_recipe
from bcnet.pipeline.tensorboard import TensorBoard

__all__ = [
    "FinishedRun",
    "Reporter",
    "RunDirectory",
    "SearchOutcome",
    "Settings",
    "TensorBoard",
    "Together",
    "default_recipe",
    "load",
    "replay",
    "search",
]
