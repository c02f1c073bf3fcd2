"""Costs: what a network of given widths takes, and budgets on it. One more is a `Measure` in a file of its own."""

from bcnet.costs.base import Constraint, Cost, Measure, Measured, Tables
from bcnet.costs.budget import MEASURES, Budget, Recorded, measure_called
from bcnet.costs.macs import MACS
from bcnet.costs.params import PARAMS
from bcnet.costs.polynomial import IntArray, Polynomial

__all__ = [
    "MACS",
    "MEASURES",
    "PARAMS",
    "Budget",
    "Constraint",
    "Cost",
    "IntArray",
    "Measure",
    "Measured",
    "Polynomial",
    "Recorded",
    "Tables",
    "measure_called",
]
