"""External pruners as baselines: the widths and channels that they keep of a trained network."""

from bcnet.pruners.depgraph import Pruned, depgraph_pruned
from bcnet.pruners.fastnas import fastnas_widths
from bcnet.pruners.reading import PRUNERS, check_installed, read_widths

__all__ = ["PRUNERS", "Pruned", "check_installed", "depgraph_pruned", "fastnas_widths", "read_widths"]
