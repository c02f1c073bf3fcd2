"""Options of a width space."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from bcnet.errors import WidthError
from bcnet.space.groups import WidthGroup, floor_choices

Multiples = int | Literal["fast"] | Mapping[str, int]
MOST_WIDENING = 4.0
_FEWEST = 4  # smallest number of widths that a multiple leaves a group
BALANCE_EXPONENT = 0.5  # between equal multiply-adds and equal parameters


@dataclass(frozen=True)
class SpaceOptions:
    """Settings of `WidthSpace.trace`.

    Args:
        num_choices: `K` in `floor(l * k / K)`.
        min_ratio: smallest width of every group, as a share of its full width.
        min_width: smallest width of all groups, or of those whose layers match a pattern.
        multiple_of: every choice except the full width, and every width from a formula, is a multiple of this; a
            mapping sets it by group; "fast" uses multiples that engines run fast (`fast_multiple`).
        ignore: patterns of layers that are pinned at full width.
        only: patterns of the layers to search; all others are pinned.
        ties: layers that must keep the same channels, in addition to those that the network ties.
        choices: your own choices, by group name.
        vary_outputs: allow the channels of the network's outputs to change.
        widen: largest width relative to that of the network.

    Example: `SpaceOptions(ignore=("stem*",), ties=(("layer1.0.conv1", "layer1.1.conv1"),))`.
    """

    num_choices: int = 20
    min_ratio: float = 0.0
    min_width: int | Mapping[str, int] | None = None
    multiple_of: Multiples = "fast"
    ignore: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ties: tuple[tuple[str, ...], ...] = ()
    choices: Mapping[str, Sequence[int]] = field(default_factory=dict)
    vary_outputs: bool = False
    widen: float = 1.0

    def __post_init__(self) -> None:
        number = isinstance(self.widen, (int, float)) and not isinstance(self.widen, bool)
        if not number or not 1 <= self.widen <= MOST_WIDENING:
            raise WidthError(
                f"widen must be in [1, {MOST_WIDENING:g}], widths over the network's own; got {self.widen!r}"
            )
        if not _is_whole(self.num_choices):
            raise WidthError(f"num_choices must be a positive int; got {self.num_choices!r}")
        if (
            isinstance(self.min_ratio, bool)
            or not isinstance(self.min_ratio, (int, float))
            or not 0 <= self.min_ratio <= 1
        ):
            raise WidthError(f"min_ratio must be in [0, 1]; got {self.min_ratio!r}")
        own = self.multiple_of.values() if isinstance(self.multiple_of, Mapping) else [self.multiple_of]
        for value in own:
            if not _is_whole(value) and self.multiple_of != "fast":
                raise WidthError(
                    f'multiple_of must be a positive int, one for each group named, or "fast"; got {value!r}'
                )
        for value in self._smallest.values():
            if not _is_whole(value):
                raise WidthError(f"min_width must be a positive int, or one for each pattern of layers; got {value!r}")
        for name in ("ignore", "only"):
            patterns = getattr(self, name)
            if not isinstance(patterns, tuple) or not all(isinstance(p, str) for p in patterns):
                raise WidthError(f"{name} must be a sequence of patterns such as 'layer4.*'; got {patterns!r}")

    def smallest_width(self, layers: Sequence[str], group: WidthGroup) -> int:
        """Return the smallest width that `min_width` sets for a group produced by `layers`; 0 for none."""
        named = [least for pattern, least in self._smallest.items() if any(matches(pattern, layer) for layer in layers)]
        return min(group.max_width, -(-max(named, default=0) // group.unit) * group.unit)

    @property
    def _smallest(self) -> Mapping[str, int]:
        """`min_width` by pattern."""
        if isinstance(self.min_width, Mapping):
            return self.min_width
        return {} if self.min_width is None else {"*": self.min_width}

    def with_choices(self, group: WidthGroup) -> WidthGroup:
        """Return the group with the choices and the step that the options define."""
        multiple = self.multiple(group)
        choices = floor_choices(
            group.max_width,
            self.num_choices,
            unit=group.unit,
            min_ratio=self.min_ratio,
            multiple_of=multiple,
            least=group.bound,
        )
        return dataclasses.replace(group, choices=choices, step=math.lcm(group.unit, multiple))

    def multiple(self, group: WidthGroup) -> int:
        """Return the multiple of a group's choices."""
        if isinstance(self.multiple_of, Mapping):
            return self.multiple_of.get(group.name, 1)
        return fast_multiple(group) if isinstance(self.multiple_of, str) else self.multiple_of


_FAST = ((64, 8), (16, 4))  # channels at least, and their multiple


def fast_multiple(group: WidthGroup) -> int:
    """Return the channel multiple at which engines run a layer fast: 8, 4, or 1 for narrow groups.

    It is 8 from 64 channels and 4 from 16 channels, and less if the group would have fewer than four widths. Widths in
    between are slower than the next wider multiple: ONNX Runtime uses its blocked kernels only for layers whose input
    channels are a multiple of 4, and XNNPACK and ncnn compute 4 or 8 channels at once (docs/multiples.md).

    Example: groups of 64 and 30 channels have 8 and 4.
    """
    wanted = next((multiple for channels, multiple in _FAST if group.max_width >= channels), 1)
    while wanted > 1 and _FEWEST * math.lcm(group.unit, wanted) > group.max_width:
        wanted //= 2
    return wanted


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def matches(pattern: str, parameter: str) -> bool:
    """Return whether a pattern matches the parameter, its layer, or a module around it.

    Example: `layer4`, `layer4.*.conv1` and `layer4.0.conv1.weight` all match the parameter `layer4.0.conv1.weight`.
    """
    parts = parameter.split(".")
    return any(fnmatchcase(".".join(parts[:n]), pattern) for n in range(1, len(parts) + 1))


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return a single pattern as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)
