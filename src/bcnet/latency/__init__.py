"""Latency: networks of random widths timed on an engine, and the model that is fitted to their times."""

from bcnet.latency.calibration import (
    TimedNetwork,
    calibrate,
    draws,
    engine_times,
    fitted,
    measure_and_fit,
    measured,
)
from bcnet.latency.engines import ENGINES, Engine, engine_of

__all__ = [
    "ENGINES",
    "Engine",
    "TimedNetwork",
    "calibrate",
    "draws",
    "engine_of",
    "engine_times",
    "fitted",
    "measure_and_fit",
    "measured",
]
