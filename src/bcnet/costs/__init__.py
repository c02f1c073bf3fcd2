"""Cost measures and budgets. A new cost is a subclass of `Measure` in one file."""

from bcnet.costs.base import Constraint, Cost, Measure, Measured, Tables
from bcnet.costs.budget import MEASURES, Budget, Recorded, check_budget, measure_called, measure_named, one_budget
from bcnet.costs.counts import MACS, PARAMS
from bcnet.costs.latency import LATENCY, Engine, Latency, LatencyModel, Term, TimedNetwork, read_latency
from bcnet.costs.memory import MEMORY, SIZE, Memory, Size
from bcnet.costs.microcontroller import ARENA, FLASH, Arena, ConvertedGraph, Flash, OnMicrocontroller
from bcnet.costs.polynomial import IntArray, Polynomial

__all__ = [
    "ARENA",
    "FLASH",
    "LATENCY",
    "MACS",
    "MEASURES",
    "MEMORY",
    "PARAMS",
    "SIZE",
    "Arena",
    "Budget",
    "Constraint",
    "ConvertedGraph",
    "Cost",
    "Engine",
    "Flash",
    "IntArray",
    "Latency",
    "LatencyModel",
    "Measure",
    "Measured",
    "Memory",
    "OnMicrocontroller",
    "Polynomial",
    "Recorded",
    "Size",
    "Tables",
    "Term",
    "TimedNetwork",
    "check_budget",
    "measure_called",
    "measure_named",
    "one_budget",
    "read_latency",
]
