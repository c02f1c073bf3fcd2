"""The supernet, whose paths are slices of a model's own parameters, and plain networks built from it."""

from bcnet.space.layout import Side
from bcnet.supernet.architecture import describe, rebuild
from bcnet.supernet.build import build
from bcnet.supernet.calibration import recalibrate
from bcnet.supernet.importance import Order, both_ends, by_importance, reorder
from bcnet.supernet.reconstruction import reconstruct
from bcnet.supernet.supernet import Supernet

__all__ = [
    "Order",
    "Side",
    "Supernet",
    "both_ends",
    "build",
    "by_importance",
    "describe",
    "rebuild",
    "recalibrate",
    "reconstruct",
    "reorder",
]
