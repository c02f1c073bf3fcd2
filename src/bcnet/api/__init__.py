"""The Python entry point `search`, which the command line calls too."""

from bcnet.api.dry_run import Preview, preview
from bcnet.api.outcome import SearchOutcome
from bcnet.api.resolution import resolve
from bcnet.api.search import search

__all__ = ["Preview", "SearchOutcome", "preview", "resolve", "search"]
