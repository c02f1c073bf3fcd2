"""Multiply-adds and parameters: the paper's two costs."""

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


@dataclass(frozen=True)
class Params(Measure):
    """Exact number of parameters, without buffers."""

    name: ClassVar[str] = "params"
    unit: ClassVar[str] = "parameters"

    def values(self, space: Measured, widths: IntArray) -> IntArray:
        """See `Measure`."""
        return space.params_terms(widths)

    def constraints(self, space: Measured) -> tuple[Polynomial]:
        """See `Measure`."""
        return (space.params_terms,)


PARAMS = Params()
