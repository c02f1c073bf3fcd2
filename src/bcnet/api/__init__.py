"""The calls that people make."""

from bcnet.api.again import evolve, retrain
from bcnet.api.baseline import BASELINES, baseline
from bcnet.api.search import search, train_supernet

__all__ = ["BASELINES", "baseline", "evolve", "retrain", "search", "train_supernet"]
