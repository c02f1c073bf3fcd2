"""Reading the widths of a pruned network off its tensors.

Pruning by others cuts channels out of a copy of the network that a space was traced from. Every dimension of a tensor
that one group alone lays out says how wide the group has become; all of them must say the same, and then account for
every other dimension as well.
"""

from __future__ import annotations

from torch import nn

from bcnet.errors import ModelError
from bcnet.space import Widths, WidthSpace
from bcnet.space.layout import length
from bcnet.space.narrowing import tensors_of


def read_widths(pruned: nn.Module, space: WidthSpace) -> Widths:
    """The widths of `pruned`, a copy of the network that `space` was traced from with channels cut out.

    Raises:
        ModelError: it is no such network, layers of one group were cut to different widths, or to widths that the
            group cannot take.
    """
    said: dict[int, dict[int, str]] = {}  # group -> width -> a tensor that says so
    sizes = {name: tuple(tensor.shape) for name, tensor in tensors_of(pruned).items() if name in space.layouts}
    missing = sorted(set(space.layouts) - set(sizes))
    if missing:
        raise ModelError(f"a pruned network keeps the names of its tensors; got none called {missing[0]!r}")
    for name, shape in sizes.items():
        for dim, size in zip(space.layouts[name], shape, strict=True):
            alone = dim[0] if len(dim) == 1 else None
            if alone is not None and alone.group is not None:
                said.setdefault(alone.group, {}).setdefault(size // alone.per_channel, name)
    widths = tuple(_agree(space.groups[g].name, said.get(g, {})) for g in range(len(space.groups)))
    _check_all(space, widths, sizes)
    space.check(widths)
    return widths


def narrowest_ratio(space: WidthSpace) -> float:
    """The smallest share of its channels that a choice of the space leaves a group."""
    return min(group.choices[0] / group.max_width for group in space.groups)


def _agree(group: str, said: dict[int, str]) -> int:
    if len(said) == 1:
        return next(iter(said))
    found = ", ".join(f"{width} in {name}" for width, name in said.items()) or "no layer that tells"
    raise ModelError(
        f"a pruner must leave all layers of a group the same channels; in group {group!r} it left {found}: it sees "
        "fewer layers coupled than the network's forward couples, so that its widths cannot be built"
    )


def _check_all(space: WidthSpace, widths: Widths, sizes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in sizes.items():
        expected = tuple(length(dim, widths) for dim in space.layouts[name])
        if shape != expected:
            raise ModelError(
                f"the pruned network must be one of the space; {name!r} would have shape {expected} at its widths, and "
                f"has {shape}: what the space holds at full width must not be pruned"
            )
