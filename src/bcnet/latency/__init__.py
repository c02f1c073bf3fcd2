"""Latency models: networks of random widths are timed on an engine, here or elsewhere, and a model is fitted."""

from bcnet.costs import TimedNetwork
from bcnet.latency.bundle import latency_from, write_bundle
from bcnet.latency.calibration import calibrate, draws, measure_and_fit, unfinished_path
from bcnet.latency.engines import ENGINES, Engine, engine_of
from bcnet.latency.fit import fit_model, multiples
from bcnet.latency.measurement import engine_times, measure_networks, measure_steadily

__all__ = [
    "ENGINES",
    "Engine",
    "TimedNetwork",
    "calibrate",
    "draws",
    "engine_of",
    "engine_times",
    "fit_model",
    "latency_from",
    "measure_and_fit",
    "measure_networks",
    "measure_steadily",
    "multiples",
    "unfinished_path",
    "write_bundle",
]
