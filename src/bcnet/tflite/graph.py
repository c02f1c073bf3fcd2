"""Arena and file size of a converted network at any widths, inferred from a few networks that tflite-micro loads.

The converted graph defines the tensors and their lifetimes. Which of their lengths follow which group of channels is
inferred by converting networks of other widths, drawn so that all lengths of the space's own tensors differ. Each
converted network also checks the whole prediction, to the byte.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import nn

from bcnet.costs import ConvertedGraph, Polynomial
from bcnet.costs.base import fingerprint
from bcnet.errors import ExportError
from bcnet.pytree import Pytree, arguments, map_tensors
from bcnet.space import WidthGroup, Widths, WidthSpace
from bcnet.space.layout import Layout, follows_widths, length
from bcnet.space.solution import sum_of_products
from bcnet.supernet import build
from bcnet.tflite.converter import Converter

NETWORKS = 3  # converted networks, the full one first
_INSTEAD = "limit memory:int8 and size:int8 instead, and leave room"
_PADDING = 2  # bytes by which an array's alignment may exceed that in the converted networks
_DRAWS = 200  # draws of widths for which all lengths differ
_SAMPLES = 4  # random inputs for ranges, which do not affect sizes


def read_graph(
    model: nn.Module,
    example_input: Pytree,
    *,
    space: WidthSpace | None = None,
    on_converted: Callable[[int], None] = lambda _: None,
) -> ConvertedGraph:
    """Convert networks of three widths to int8, and infer the memory of any widths on a microcontroller.

    Args:
        model: the network.
        example_input: an input `(batch, ...)` of its `forward`; the network is converted for a batch of one.
        space: its width space; default: `WidthSpace.trace(model, example_input)`.
        on_converted: called with the number of networks converted so far.

    Raises:
        ExportError: converter or tflite-micro are not installed or refuse the network, or its graph changes with the
            widths in an unpredictable way.

    Example: `Budget({Arena(read_graph(network, torch.zeros(1, 1, 49, 10))): "64 KiB"})`
    """
    args, kwargs = arguments(example_input)
    traced = space or WidthSpace.trace(model, args, example_kwargs=kwargs)
    one = map_tensors(lambda tensor: tensor[:1].detach().cpu(), example_input)
    samples = map_tensors(lambda tensor: torch.stack([_noise(tensor, n) for n in range(_SAMPLES)]), one)
    probes = _probes(traced)
    facts = []
    with Converter() as converter:
        versions = converter.versions()
        if "tflite-micro" not in versions:
            raise ExportError(
                "the arena is measured by tflite-micro, which is not installed: run `pip install tflite-micro`"
            )
        for number, widths in enumerate(probes, 1):
            network = disturb(build(model.cpu(), traced, widths).eval())
            facts.append(converter.describe(converter.convert(network, one, samples)))
            on_converted(number)
    return dataclasses.replace(_read(traced, probes, facts), versions=versions)


def _noise(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed)).to(tensor.dtype)


def disturb(network: nn.Module) -> nn.Module:
    """Return the network with distinct weights, since equal constants, such as zeros, are stored once."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in network.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand(tensor.shape, generator=generator))
    return network


def _probes(space: WidthSpace) -> list[Widths]:
    """Return the full widths, then others at which different lengths of the space's tensors have different values."""
    layouts = _layouts(space)
    rng = np.random.default_rng(0)
    best: list[Widths] = []
    most = 0
    for _ in range(_DRAWS):
        drawn = [tuple(_narrow(group, rng) for group in space.groups) for _ in range(NETWORKS - 1)]
        distinct = len({tuple(length(layout, widths) for widths in drawn) for layout in layouts})
        if distinct > most:
            most, best = distinct, drawn
        if most == len(layouts):
            break
    return [space.full, *best]


def _narrow(group: WidthGroup, rng: np.random.Generator) -> int:
    """Return a width between half and full; at least two, since the converter replaces single-channel operators."""
    low = max(group.least, 2, math.ceil(group.max_width / 2))
    choices = [width for width in range(group.unit, group.max_width, group.unit) if width >= low]
    return int(rng.choice(choices)) if choices else group.max_width


def _layouts(space: WidthSpace) -> list[Layout]:
    """Return the distinct dimensions of the network's tensors that follow a group, those of a single group first."""
    found = {}
    for layout in itertools.chain(*space.layouts.values()):
        if follows_widths(layout):
            found[repr(sum_of_products([(1, [layout])]).to_list())] = layout
    return sorted(found.values(), key=len)


def _read(space: WidthSpace, probes: Sequence[Widths], facts: Sequence[Any]) -> ConvertedGraph:
    """Return the model that explains the facts of all networks.

    Raises:
        ExportError: there is none.
    """
    # Shapes may differ with the widths, operators may not: otherwise three networks say nothing about a fourth.
    first, *others = facts
    for other in others:
        if other["operators"] != first["operators"]:
            raise ExportError(
                f"the converter makes another graph at other widths, so that no arena can be predicted: {_INSTEAD}"
            )
    layouts = _layouts(space)

    def terms(values: Sequence[int], what: str) -> Polynomial:
        """Return the length that has these values at the probes."""
        # A length that is equal at all probes is a constant, for instance of pixels or classes.
        if len(set(values)) == 1:
            return Polynomial({(): values[0]})
        found = []
        for layout in layouts:
            lengths = [length(layout, widths) for widths in probes]
            ratio = Fraction(values[0], lengths[0])
            if all(value == ratio * n for value, n in zip(values, lengths, strict=True)):
                whole = sum_of_products([(ratio.numerator, [layout])])
                if all(coefficient % ratio.denominator == 0 for coefficient in whole.terms.values()):
                    # Several groups may explain a length; the one with the simplest factor is most likely the
                    # tensor's own.
                    found.append((max(ratio, 1 / ratio), whole, ratio.denominator))
        if found:
            _, whole, denominator = min(found, key=lambda each: each[0])
            return Polynomial({groups: value // denominator for groups, value in whole.terms.items()})
        raise ExportError(
            f"{what} of the converted graph is {', '.join(map(str, values))} long at three widths, which follows no "
            f"group of channels: {_INSTEAD}"
        )

    def bytes_of(kind: str) -> list[Polynomial]:
        found = []
        for rows in zip(*(fact[kind] for fact in facts), strict=True):
            shapes = [row[0] for row in rows]
            if len({len(shape) for shape in shapes}) > 1:
                raise ExportError(f"a tensor of the converted graph has other dimensions at other widths: {_INSTEAD}")
            product = Polynomial({(): rows[0][1]})
            for column in zip(*shapes, strict=True):
                product = product * terms(column, "a tensor")
            found.append(product)
        return found

    channels = tuple(terms(column, "an operator") for column in zip(*(f["channels"] for f in facts), strict=True))
    lives = tuple((row[2], row[3]) for row in first["tensors"])
    constants = sum(bytes_of("constants"), Polynomial({}))
    # What is left of the file is the graph itself, with up to `_PADDING` bytes of alignment for each constant.
    beside = [fact["file"] - int(constants(np.array([widths]))[0]) for widths, fact in zip(probes, facts, strict=True)]
    file = constants + Polynomial({(): max(beside) + _PADDING * len(first["constants"])})
    model = ConvertedGraph(fingerprint(space), tuple(bytes_of("tensors")), lives, channels, 0, file, len(probes))
    arenas = np.array([fact["arena"]["total"] for fact in facts])
    # The simulated plan must leave the same remainder in all networks, otherwise it is not tflite-micro's plan.
    rest = arenas - model.arena(np.array(probes))
    if (rest != rest[0]).any():
        raise ExportError(
            f"tflite-micro takes {', '.join(map(str, arenas.tolist()))} bytes at three widths, which the plan "
            f"does not explain (left over: {', '.join(map(str, rest.tolist()))}): {_INSTEAD}"
        )
    return dataclasses.replace(model, tail=int(rest[0]))
