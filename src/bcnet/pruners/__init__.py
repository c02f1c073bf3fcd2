"""Pruners of others as baselines: the widths that they leave in a trained network, and nothing else of it."""

from bcnet.pruners.extras import check_installed
from bcnet.pruners.fastnas import fastnas_widths
from bcnet.pruners.magnitude import magnitude_widths
from bcnet.pruners.reading import read_widths

__all__ = ["check_installed", "fastnas_widths", "magnitude_widths", "read_widths"]
