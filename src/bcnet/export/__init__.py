"""Results for use outside of bcnet: exported files, model card, upload to the hub, and latency."""

from bcnet.export.formats import FORMATS, format_of
from bcnet.export.hub import push_run
from bcnet.export.job import Export, export_run
from bcnet.export.latency import Latency, installed_backends, measure_latency, read_latencies
from bcnet.export.quantized import RealInputs
from bcnet.formats import Format
from bcnet.machine.timing import Timing
from bcnet.run.finished import FinishedRun

__all__ = [
    "FORMATS",
    "Export",
    "FinishedRun",
    "Format",
    "Latency",
    "RealInputs",
    "Timing",
    "export_run",
    "format_of",
    "installed_backends",
    "measure_latency",
    "push_run",
    "read_latencies",
]
