"""Search methods. Each finds the widths of a run, as a value with its own fields, checks and stages.

To add a method, subclass `Method` in one file and pass an instance to `bcnet.search(..., method=...)`.
"""

from bcnet.methods.base import Method, Start, parse_method
from bcnet.methods.closed_form import Balanced, Given, Pruned, Uniform
from bcnet.methods.supernet import PAPER, AutoSlim, BCNet, SupernetMethod
from bcnet.methods.trainings import Random, Trainings, TrainingsMethod

METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in (Trainings, BCNet, AutoSlim, Random, Uniform, Balanced, Pruned, Given)
}
"""The methods of the library by name."""

__all__ = [
    "METHODS",
    "PAPER",
    "AutoSlim",
    "BCNet",
    "Balanced",
    "Given",
    "Method",
    "Pruned",
    "Random",
    "Start",
    "SupernetMethod",
    "Trainings",
    "TrainingsMethod",
    "Uniform",
    "parse_method",
]
