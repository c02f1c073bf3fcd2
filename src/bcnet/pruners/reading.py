"""Read the widths of a pruned network off its tensors.

External pruners remove channels from a copy of the traced network. Every dimension that belongs to a single group gives
the width of that group. All of them must agree, and the result must explain every other dimension too.

"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from torch import nn

from bcnet.errors import ModelError, RecipeError
from bcnet.space import Widths, WidthSpace
from bcnet.space.layout import length
from bcnet.space.narrowing import tensors_of


def read_widths(pruned: nn.Module, space: WidthSpace) -> Widths:
    """Return the widths of `pruned`, a copy of the network that `space` was traced from with channels removed.

    Raises:
        ModelError: not such a network, layers of one group with different widths, or widths that the group does not
            allow.
    """
    names_by_width: dict[int, dict[int, str]] = {}  # group -> width -> a tensor with that width
    sizes = {name: tuple(tensor.shape) for name, tensor in tensors_of(pruned).items() if name in space.layouts}
    missing = sorted(set(space.layouts) - set(sizes))
    if missing:
        raise ModelError(f"a pruned network must keep the names of its tensors; got none called {missing[0]!r}")
    for name, shape in sizes.items():
        for dim, size in zip(space.layouts[name], shape, strict=True):
            alone = dim[0] if len(dim) == 1 else None
            if alone is not None and alone.group is not None:
                names_by_width.setdefault(alone.group, {}).setdefault(size // alone.per_channel, name)
    widths = tuple(_agree(space.groups[g].name, names_by_width.get(g, {})) for g in range(len(space.groups)))
    _check_all(space, widths, sizes)
    space.check(widths)
    return widths


def narrowest_ratio(space: WidthSpace) -> float:
    """Return the smallest share of a group's channels among the space's narrowest choices."""
    return min(group.choices[0] / group.max_width for group in space.groups)


def _agree(group: str, names_by_width: dict[int, str]) -> int:
    if len(names_by_width) == 1:
        return next(iter(names_by_width))
    found = ", ".join(f"{width} in {name}" for width, name in names_by_width.items()) or "no layer that tells"
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


PRUNERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "magnitude": ("torch_pruning",),
        "taylor": ("torch_pruning",),
        "fastnas": ("modelopt", "torchprofile", "requests", "huggingface_hub"),
    }
)
"""Modules that each pruner imports."""
_EXTRAS = {"taylor": "magnitude"}  # extras that install them, if not named like the pruner


def check_installed(pruner: str) -> None:
    """Check that a pruner can run here.

    Raises:
        RecipeError: a package is missing; the message says how to install it.
    """
    missing = [name for name in PRUNERS[pruner] if find_spec(name) is None]
    if missing:
        raise RecipeError(
            f"the baseline {pruner!r} needs packages that are not installed here, {', '.join(missing)}: "
            f"pip install 'bcnet[{_EXTRAS.get(pruner, pruner)}]'"
        )
