"""The Python entry points `search`, which the command line calls too, and `narrow`."""

from bcnet.api.dry_run import Preview, preview
from bcnet.api.narrow import narrow
from bcnet.api.outcome import SearchOutcome
from bcnet.api.resolution import resolve
from bcnet.api.search import search

__all__ = ["Preview", "SearchOutcome", "narrow", "preview", "resolve", "search"]
