"""Layouts: the width groups of the elements of a parameter dimension.

Notation: a dimension of `size` elements is divided into segments. The segment of group `g` with `max_width` channels
holds `size / max_width` consecutive elements per channel (1 for a convolution, height x width after a flatten). At
width `c` it keeps the elements of `c` channels: the first ones on side LEFT, the last ones on side RIGHT, so that both
sides mirror each other, through concatenations too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Side(Enum):
    """End from which channels are kept: LEFT keeps `[0, c)`, RIGHT keeps `[l - c, l)` (Eq. 5)."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True)
class Segment:
    """A run of `size` consecutive elements of one dimension.

    `group` is an index into `WidthSpace.groups`, or None for elements that are always kept. Each channel of the group
    owns `per_channel` elements.

    Example: flattening 512 channels of 7 x 7 gives `Segment(group=15, size=25088, per_channel=49)`.
    """

    group: int | None
    size: int
    per_channel: int = 1

    def length(self, widths: Sequence[int]) -> int:
        """Return the number of elements kept at `widths` (one width per group)."""
        return self.size if self.group is None else widths[self.group] * self.per_channel


Layout = tuple[Segment, ...]  # one dimension
ParameterLayout = tuple[Layout, ...]  # all dimensions of a parameter or buffer


def length(layout: Layout, widths: Sequence[int]) -> int:
    """Return the size of the dimension at `widths`."""
    return sum(segment.length(widths) for segment in layout)


def follows_widths(layout: Layout) -> bool:
    """Return whether the size of the dimension depends on the widths."""
    return any(segment.group is not None for segment in layout)


def spans(layout: Layout, widths: Sequence[int], side: Side) -> list[tuple[int, int]]:
    """Return the kept elements of the dimension as `(start, length)` runs in ascending order, adjacent ones merged."""
    runs: list[tuple[int, int]] = []
    offset = 0
    for segment in layout:
        kept = segment.length(widths)
        start = offset if side is Side.LEFT else offset + segment.size - kept
        # Fewer runs mean fewer concatenations; one run is a view.
        if runs and sum(runs[-1]) == start:
            runs[-1] = (runs[-1][0], runs[-1][1] + kept)
        else:
            runs.append((start, kept))
        offset += segment.size
    return runs
