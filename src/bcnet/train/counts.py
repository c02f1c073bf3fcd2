"""How often every channel was trained: the fairness that Eq. 5-9 reason about, counted for real."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bcnet.space import Side, WidthSpace
from bcnet.space.cost import IntArray
from bcnet.train.step import Term


class ChannelCounts:
    """Per group, the number of paths that each channel took part in.

    `of[g]` has shape `(max_width of group g,)`.
    """

    def __init__(self, space: WidthSpace) -> None:
        self.of: list[IntArray] = [np.zeros(width, dtype=np.int64) for width in space.full]

    def add(self, terms: Iterable[Term]) -> None:
        """Count one step."""
        for term in terms:
            for path in term.paths:
                for counts, width in zip(self.of, path.widths, strict=True):
                    start = 0 if path.side is Side.LEFT else len(counts) - width
                    counts[start : start + width] += 1

    def spread(self) -> IntArray:
        """Per group, the largest count minus the smallest: zero where training is fair. Shape `(groups,)`."""
        return np.array([counts.max() - counts.min() for counts in self.of], dtype=np.int64)
