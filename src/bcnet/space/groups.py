"""Width groups: the search variables of a network, their admissible widths, and pinned dimensions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bcnet.errors import WidthError


@dataclass(frozen=True)
class WidthGroup:
    """Parameter dimensions that must keep the same channels: one search variable.

    `choices` are ascending multiples of `unit`, the last one `max_width`. `members` are the names of the parameters and
    buffers with a dimension in the group. `bound` is the smallest allowed width if the network's code or the user
    requires one. Widths from a formula (Uniform, balanced) are multiples of `step`, or the full width; 0 stands for the
    unit.


    Example: `WidthGroup("features.0", 64, 1, (3, 6, ..., 64), ("features.0.weight", "features.1.weight", ...))`.
    """

    name: str
    max_width: int
    unit: int
    choices: tuple[int, ...]
    members: tuple[str, ...] = ()
    bound: int = 0
    step: int = 0

    @property
    def least(self) -> int:
        """Narrowest width allowed: one unit, or `bound` if larger."""
        return max(self.unit, self.bound)

    def floor(self, width: float) -> int:
        """Return the widest multiple of the step, or full width, up to `width`; at least the narrowest one allowed."""
        if width + 1e-9 >= self.max_width:
            return self.max_width
        step = self.step or self.unit
        narrowest = -(-self.least // step) * step
        return min(self.max_width, max(narrowest, math.floor(width / step + 1e-9) * step))

    def wider(self, width: int) -> int:
        """Return the next multiple of the step above `width`, or the full width."""
        step = self.step or self.unit
        return min(self.max_width, (width // step + 1) * step)


@dataclass(frozen=True)
class FixedDimension:
    """A dimension that is pinned at full width, and the reason.

    `name` is the parameter and `size` its elements in that dimension. `operator` and `where` are the operation and
    source line that pin it. `remedy` says what to do (empty if nothing can be done, as for the logits).
    """

    name: str
    dim: int
    size: int
    reason: str
    operator: str = ""
    where: str = ""
    remedy: str = ""


def floor_choices(
    max_width: int, num_choices: int, *, unit: int = 1, min_ratio: float = 0.0, multiple_of: int = 1, least: int = 0
) -> tuple[int, ...]:
    """Return `floor(l * k / K)` for k = 1..K, rounded down to multiples of unit and `multiple_of`, and `l` itself.

    Values below one step, `least` or `min_ratio * l` are dropped, and duplicates merged (spec, section 1).

    Example: `floor_choices(512, 20)[:3] == (25, 51, 76)`; `floor_choices(24, 4, multiple_of=8) == (8, 16, 24)`.
    """
    step = math.lcm(unit, multiple_of)
    rounded = {max_width * k // num_choices // step * step for k in range(1, num_choices)}
    kept = {width for width in rounded if width >= max(step, least, min_ratio * max_width)}
    return tuple(sorted(kept | {max_width}))


def complement(group: WidthGroup, width: int, *, bounded: bool = False) -> int:
    """Return the complement of a width: `l - c`, or `l + c_min - c` if bounded (spec, section 3)."""
    if bounded or group.bound:
        return group.max_width + group.choices[0] - width
    return group.max_width - width or group.max_width


def with_choices(group: WidthGroup, choices: Sequence[int] | None) -> WidthGroup:
    """Return the group with other choices, validated; None leaves it unchanged."""
    if choices is None:
        return group
    ascending = tuple(sorted(set(choices)))
    if not ascending or any(c < group.least or c > group.max_width or c % group.unit for c in ascending):
        raise WidthError(
            f"choices of group {group.name!r} must be multiples of {group.unit}, {group.least} to {group.max_width}; "
            f"got {list(choices)}"
        )
    return dataclasses.replace(group, choices=ascending)


def with_bounds(groups: Sequence[WidthGroup], bounds: Mapping[str, int]) -> tuple[WidthGroup, ...]:
    """Return the groups with the given narrowest widths, by name."""
    return tuple(dataclasses.replace(g, bound=bounds.get(g.name, g.bound)) for g in groups)
