"""The result outside of bcnet: in other formats, with a model card, on the hub, and how fast it is there."""

from bcnet.export.formats import FORMATS, Format
from bcnet.export.hub import push_run
from bcnet.export.job import Export, export_run
from bcnet.export.timing import Timing

__all__ = ["FORMATS", "Export", "Format", "Timing", "export_run", "push_run"]
