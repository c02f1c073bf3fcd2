"""Widths rounded to multiples of 8, which some devices compute faster."""

from __future__ import annotations

import math

from bcnet.space import Budget, Widths, WidthSpace


def rounded(space: WidthSpace, widths: Widths, multiple: int, budget: Budget) -> Widths:
    """The nearest multiples of `multiple` (and of each group's unit), at most full, within the budget where possible.

    While the budget is exceeded the group that was widened most, for its size, goes one step down, to the multiple
    below its width in `widths`. A group narrower than one multiple keeps one, so that the result may exceed the budget.
    """
    found = [
        _nearest(group.max_width, math.lcm(group.unit, multiple), width)
        for group, width in zip(space.groups, widths, strict=True)
    ]
    limits = budget.resolve(space.reference)
    while not limits.admits(space.cost(tuple(found))):
        lower = {
            g: (found[g] - widths[g]) / widths[g]
            for g, group in enumerate(space.groups)
            if found[g] > widths[g] and found[g] > math.lcm(group.unit, multiple)
        }
        if not lower:
            break
        widest = max(lower, key=lambda g: (lower[g], g))
        step = math.lcm(space.groups[widest].unit, multiple)
        found[widest] = (found[widest] - 1) // step * step
    return tuple(found)


def _nearest(full: int, step: int, width: int) -> int:
    """A full width stays full, multiple or not: narrowing the original's width is no rounding."""
    if width == full or step > full:
        return full
    return min(max(step, (width + step // 2) // step * step), full)
