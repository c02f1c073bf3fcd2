"""Multiply-adds of convolutions and linear layers for one input: the paper's FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bcnet.costs.base import Measure, Measured
from bcnet.costs.polynomial import IntArray, Polynomial


@dataclass(frozen=True)
class Macs(Measure):
    """Exact multiply-adds for one input."""

    name: ClassVar[str] = "macs"
    unit: ClassVar[str] = "MACs"

    def values(self, space: Measured, widths: IntArray) -> IntArray:
        """See `Measure`."""
        return space.macs_terms(widths)

    def constraints(self, space: Measured) -> tuple[Polynomial]:
        """See `Measure`."""
        return (space.macs_terms,)


MACS = Macs()
