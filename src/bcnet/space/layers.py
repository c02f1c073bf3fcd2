"""Costs of single layers.

The polynomials of all layers add up to those of the space, term by term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bcnet.costs import IntArray, Polynomial
from bcnet.space.layout import Layout, Segment, length


@dataclass(frozen=True)
class LayerTerms:
    """Costs of one layer at any widths.

    `name` is the module that owns the parameters. `out` is the layout of the channels it produces; None for layers
    without multiply-adds, which pass channels through. `macs` and `params` are polynomials in the widths of the groups.

    Example: a 3x3 convolution without bias from group 0 to group 1 on 8x8 outputs has
    `macs=Polynomial({(0, 1): 576})` and `params=Polynomial({(0, 1): 9})`.
    """

    name: str
    out: Layout | None
    macs: Polynomial
    params: Polynomial

    def width(self, widths: Sequence[int]) -> int | None:
        """Return the channels that the layer produces at `widths`, one width per group.

        None if it passes channels through.
        """
        return None if self.out is None else length(self.out, widths)

    def positions(self, widths: IntArray) -> float:
        """Return multiply-adds over parameters at `widths`, `(1, groups)`; 0 without either."""
        macs = int(self.macs(widths)[0])
        params = int(self.params(widths)[0])
        return macs / params if macs and params else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers for JSON; `from_dict` is the inverse."""
        return {
            "name": self.name,
            "out": None if self.out is None else [[s.group, s.size, s.per_channel] for s in self.out],
            "macs": self.macs.to_list(),
            "params": self.params.to_list(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LayerTerms:
        """Return the layer that `to_dict` wrote."""
        return cls(
            name=data["name"],
            out=None if data["out"] is None else tuple(Segment(*segment) for segment in data["out"]),
            macs=Polynomial.from_list(data["macs"]),
            params=Polynomial.from_list(data["params"]),
        )
