"""A run: its settings, its directory, and what it holds."""

from bcnet.run.presets import PRESETS

__all__ = ["PRESETS"]
