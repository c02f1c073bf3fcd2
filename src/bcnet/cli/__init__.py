"""The command line."""

from bcnet.cli.app import main

__all__ = ["main"]
