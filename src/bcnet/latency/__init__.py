"""Latency: networks of random widths timed on an engine, here or elsewhere, and the model fitted to their times."""

from bcnet.costs import TimedNetwork
from bcnet.latency.bundle import latency_from, write_bundle
from bcnet.latency.calibration import calibrate, draws, measure_and_fit, unfinished
from bcnet.latency.engines import ENGINES, Engine, engine_of
from bcnet.latency.fit import fitted, multiples
from bcnet.latency.measurement import engine_times, measured, paced

__all__ = [
    "ENGINES",
    "Engine",
    "TimedNetwork",
    "calibrate",
    "draws",
    "engine_of",
    "engine_times",
    "fitted",
    "latency_from",
    "measure_and_fit",
    "measured",
    "multiples",
    "paced",
    "unfinished",
    "write_bundle",
]
