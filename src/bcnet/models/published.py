"""Published widths for comparison: BCNet's for CIFAR-10 and ImageNet, AutoSlim's for ImageNet.

They are stored as in their sources, one number per convolution in network order (that of `model.modules()`), and mapped
to the groups of a width space by the convolutions' places in the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from torch import nn

from bcnet.errors import ModelError
from bcnet.space import Widths, WidthSpace

Table = Mapping[str, Mapping[str, Widths]]


def widths(space: WidthSpace, model: nn.Module, network: str, variant: str) -> Widths:
    """Return the published widths of `network` at `variant`, one per group of `space`, which was traced from `model`.

    Example: `widths(space, model, "vgg19_cifar10", "0.5")` are those of the VGG19 with half the MACs.

    Raises:
        ModelError: an unknown network or variant, or the model is another one: it has another number of convolutions,
            or a group ties convolutions with different published widths.
        WidthError: a width exceeds its group's, since the model is narrower than the published one.
    """
    numbers = _find_widths(network, variant)
    groups = convolution_groups(space, model)
    if len(groups) != len(numbers):
        raise ModelError(
            f"the widths of {network!r} are for {len(numbers)} convolutions; got a model that has {len(groups)}"
        )
    found: dict[int, int] = {}
    for (name, group), number in zip(groups.items(), numbers, strict=True):
        if group is None:
            continue
        if found.setdefault(group, number) != number:
            raise ModelError(
                f"the convolutions of group {space.groups[group].name!r} must share one width; got {found[group]} and, "
                f"for {name!r}, {number}: the model is not the one {network!r} is for"
            )
    result = tuple(found.get(index, group.max_width) for index, group in enumerate(space.groups))
    space.check(result)
    return result


def entry_of(model: str, variant: str) -> tuple[str, str]:
    """Return network and variant in `table()` for a model by its name in `bcnet.models.create`.

    A ratio may end in x.

    Example: `entry_of("vgg19", "0.5x") == ("vgg19_cifar10", "0.5")`.

    Raises:
        ModelError: there are no published widths for the model or variant.
    """
    known = _models()
    if model not in known:
        raise ModelError(f"published widths exist for {', '.join(known)}; got {model!r}")
    shorter = variant.removesuffix("x")
    for network in known[model]:
        for name in (variant, shorter):
            if name in table()[network]:
                return network, name
    names = ", ".join(name for network in known[model] for name in table()[network])
    raise ModelError(f"published widths of {model!r} exist for {names}; got {variant!r}")


def convolution_groups(space: WidthSpace, model: nn.Module) -> dict[str, int | None]:
    """Return the group of each convolution's output channels by weight name, in the order of `model.modules()`.

    The group is None if the output is pinned at full width.
    """
    names = [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]
    return {name: space.layouts[name][0][0].group if name in space.layouts else None for name in names}


@cache
def table() -> Table:
    """Return a mapping of network to variant (its cost, as named by the authors) to widths, one per convolution."""
    networks = {
        network: MappingProxyType({variant: tuple(numbers) for variant, numbers in entry["widths"].items()})
        for network, entry in _entries().items()
    }
    return MappingProxyType(networks)


@cache
def _models() -> Mapping[str, tuple[str, ...]]:
    """Return the models' names with their networks in the table."""
    found: dict[str, tuple[str, ...]] = {}
    for network, entry in _entries().items():
        # "torchvision resnet50" there is `torchvision:resnet50` here; factory settings follow a comma
        model = entry["model"].partition(",")[0].replace(" ", ":")
        found[model] = (*found.get(model, ()), network)
    return MappingProxyType(found)


@cache
def _entries() -> Mapping[str, Any]:
    text = resources.files("bcnet.models").joinpath("published_widths.json").read_text(encoding="utf-8")
    return MappingProxyType(json.loads(text))


def _find_widths(network: str, variant: str) -> Widths:
    if network not in table():
        raise ModelError(f"published widths exist for {', '.join(table())}; got {network!r}")
    if variant not in table()[network]:
        raise ModelError(f"published widths of {network!r} exist for {', '.join(table()[network])}; got {variant!r}")
    return table()[network][variant]
