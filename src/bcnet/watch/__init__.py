"""A page that shows runs while they go on, for `bcnet watch`. It reads run directories and writes nothing."""

from bcnet.watch.server import serve

__all__ = ["serve"]
