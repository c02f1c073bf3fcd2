"""The calls that people make; the command line makes the same."""

from bcnet.api.calls import baseline, evolve, find_network, find_widths, retrain, search, train_supernet, train_widths
from bcnet.api.dry_run import Preview, preview
from bcnet.api.outcomes import FoundWidths, SearchOutcome, TrainedSupernet
from bcnet.api.resolution import resolve

__all__ = [
    "FoundWidths",
    "Preview",
    "SearchOutcome",
    "TrainedSupernet",
    "baseline",
    "evolve",
    "find_network",
    "find_widths",
    "preview",
    "resolve",
    "retrain",
    "search",
    "train_supernet",
    "train_widths",
]
