"""Widths that authors published: BCNet's for CIFAR-10 and ImageNet, AutoSlim's for ImageNet, to compare with.

They are kept as in their sources, one number for each convolution in network order, and mapped to the groups of a width
space by the convolutions' places in the model. "Network order" is the order of `model.modules()`.
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
    """The published widths of `network` at `variant`, one for each group of `space`, which was traced from `model`.

    Example: `widths(space, model, "vgg19_cifar10", "0.5")` are those of the VGG19 with half the MACs.

    Raises:
        ModelError: no such network or variant, another number of convolutions, or convolutions that one group ties
            together with different widths: the model is not the one the widths are for.
        WidthError: a width beyond its group's: the model is narrower than the one the widths are for.
    """
    numbers = _numbers(network, variant)
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
    """Network and variant in `table()` for the model of this name, as `bcnet.models.create` takes it.

    A ratio may end in x.

    Example: `entry_of("vgg19", "0.5x") == ("vgg19_cifar10", "0.5")`.

    Raises:
        ModelError: nobody published widths for it, or not this variant.
    """
    known = _models()
    if model not in known:
        raise ModelError(f"published widths are there for {', '.join(known)}; got {model!r}")
    shorter = variant.removesuffix("x")
    for network in known[model]:
        for name in (variant, shorter):
            if name in table()[network]:
                return network, name
    names = ", ".join(name for network in known[model] for name in table()[network])
    raise ModelError(f"published widths of {model!r} are there for {names}; got {variant!r}")


def convolution_groups(space: WidthSpace, model: nn.Module) -> dict[str, int | None]:
    """Weight name of every convolution, in the order of `model.modules()` -> the group of its output channels.

    The group is None where the output is pinned at full width.
    """
    names = [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]
    return {name: space.layouts[name][0][0].group if name in space.layouts else None for name in names}


@cache
def table() -> Table:
    """Network -> variant (its cost, as its authors name it) -> widths, one for each convolution."""
    networks = {
        network: MappingProxyType({variant: tuple(numbers) for variant, numbers in entry["widths"].items()})
        for network, entry in _entries().items()
    }
    return MappingProxyType(networks)


@cache
def _models() -> Mapping[str, tuple[str, ...]]:
    """Names of models, and the networks in the table that they are."""
    found: dict[str, tuple[str, ...]] = {}
    for network, entry in _entries().items():
        # "torchvision resnet50" there is `torchvision:resnet50` here; what follows a comma are settings of the factory.
        model = entry["model"].partition(",")[0].replace(" ", ":")
        found[model] = (*found.get(model, ()), network)
    return MappingProxyType(found)


@cache
def _entries() -> Mapping[str, Any]:
    text = resources.files("bcnet.models").joinpath("published_widths.json").read_text(encoding="utf-8")
    return MappingProxyType(json.loads(text))


def _numbers(network: str, variant: str) -> Widths:
    if network not in table():
        raise ModelError(f"published widths are there for {', '.join(table())}; got {network!r}")
    if variant not in table()[network]:
        raise ModelError(
            f"published widths of {network!r} are there for {', '.join(table()[network])}; got {variant!r}"
        )
    return table()[network][variant]
