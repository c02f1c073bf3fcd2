"""Command line interface."""

from bcnet.cli.app import main

__all__ = ["main"]
