"""Operator rules: how channel labels pass through an operator, and which dimensions it ties together.

To support a new operator, add a rule to the module it belongs to.
"""

from bcnet.space.rules import layers, moves, parts, pointwise, products, shape, spectral
from bcnet.space.rules.pointwise import broadcast
from bcnet.space.rules.table import MADE_OF_NOTHING, RULES, operator_of, rule, unknown

__all__ = [
    "MADE_OF_NOTHING",
    "RULES",
    "broadcast",
    "layers",
    "moves",
    "operator_of",
    "parts",
    "pointwise",
    "products",
    "rule",
    "shape",
    "spectral",
    "unknown",
]
