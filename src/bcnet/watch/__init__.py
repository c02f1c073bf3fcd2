"""A live page of runs, for `bcnet watch`. It reads run directories and writes nothing."""

from bcnet.watch.server import serve

__all__ = ["serve"]
