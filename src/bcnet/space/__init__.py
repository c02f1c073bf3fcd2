"""Width spaces: the widths that can be searched in a network, and the cost of any widths."""

from bcnet.costs import Budget, Cost, Polynomial
from bcnet.space.groups import FixedDimension, WidthGroup, floor_choices
from bcnet.space.layers import LayerTerms
from bcnet.space.layout import Segment, Side
from bcnet.space.problem import Problem
from bcnet.space.rules import rule
from bcnet.space.space import Widths, WidthSpace

trace = WidthSpace.trace
"""Find the width groups of a network: `trace(model, example_input)`."""

__all__ = [
    "Budget",
    "Cost",
    "FixedDimension",
    "LayerTerms",
    "Polynomial",
    "Problem",
    "Segment",
    "Side",
    "WidthGroup",
    "WidthSpace",
    "Widths",
    "floor_choices",
    "rule",
    "trace",
]
