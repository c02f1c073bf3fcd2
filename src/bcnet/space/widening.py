"""Widening: the space and the module of a network that is wider in every group (spec, section 1).

Notation: a group of `l` channels gets `floor(l * ratio)`, in units. Costs are polynomials in the widths and layouts are
lengths in channels, so both hold for wider groups, and nothing is traced again.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from bcnet.errors import TraceError
from bcnet.space.example import Example
from bcnet.space.layout import Layout, length
from bcnet.space.narrowing import Narrowing

if TYPE_CHECKING:
    from bcnet.space.options import SpaceOptions
    from bcnet.space.space import Widths, WidthSpace


def widen(space: WidthSpace, options: SpaceOptions) -> WidthSpace:
    """Return the space of a network `options.widen` times as wide, which also stores the original widths."""
    tops = tuple(math.floor(g.max_width * options.widen / g.unit + 1e-9) * g.unit for g in space.groups)
    wide = with_tops(space, tops)
    groups = tuple(map(options.with_choices, wide.groups))
    return dataclasses.replace(wide, groups=groups, original=space.reference, own_widths=space.full)


def with_tops(space: WidthSpace, tops: Sequence[int]) -> WidthSpace:
    """Return the space with `tops` as the widest widths, and choices up to them."""
    groups = tuple(
        dataclasses.replace(g, max_width=top, choices=(*(c for c in g.choices if c < top), top))
        for g, top in zip(space.groups, tops, strict=True)
    )
    layers = tuple(
        dataclasses.replace(layer, out=None if layer.out is None else _resize_layout(layer.out, tops))
        for layer in space.layers
    )
    layouts = {name: tuple(_resize_layout(dim, tops) for dim in layout) for name, layout in space.layouts.items()}
    numbers = {key: _resize_layout(layout, tops) for key, layout in space.numbers.items()}
    return dataclasses.replace(space, groups=groups, layers=layers, layouts=layouts, numbers=numbers)


def _resize_layout(layout: Layout, tops: Sequence[int]) -> Layout:
    return tuple(dataclasses.replace(segment, size=segment.length(tops)) for segment in layout)


def undo_widen(space: WidthSpace) -> WidthSpace:
    """Return the space of the original network, with any choices; the space itself if it is not widened."""
    if space.original_widths == space.full:
        return space
    return dataclasses.replace(with_tops(space, space.original_widths), own_widths=None, original=None)


def stretch(module: nn.Module, space: WidthSpace, tops: Widths, generator: torch.Generator) -> nn.Module:
    """Change `module` in place: its tensors get the sizes for `tops`, filled with random draws from their own elements.

    An untrained network of that width has the same weights up to the scale of its larger fans.
    """
    layouts = space.layouts
    narrowing = Narrowing(module, layouts, space.numbers)
    new: dict[int, torch.Tensor] = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for table in (part._parameters, part._buffers):
            for key, tensor in table.items():
                name = f"{prefix}.{key}" if prefix else key
                if tensor is None or name not in layouts:
                    continue
                if id(tensor) not in new:
                    new[id(tensor)] = _draw_elements(tensor, [length(dim, tops) for dim in layouts[name]], generator)
                table[key] = new[id(tensor)]
    narrowing.fix_numbers(tops)
    return module


def _draw_elements(tensor: torch.Tensor, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    flat = tensor.detach().flatten()
    index = torch.randint(flat.numel(), (math.prod(shape),), generator=generator)
    drawn = flat[index.to(flat.device)].view(*shape)
    return nn.Parameter(drawn, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else drawn


def check_runs(model: nn.Module, example: Example, space: WidthSpace, wide: WidthSpace) -> None:
    """Raise TraceError unless the model's own code runs with every group as wide as in `wide`."""
    network = stretch(copy.deepcopy(model), space, wide.full, torch.Generator().manual_seed(0))
    for training in (True, False):
        try:
            with torch.no_grad():
                example.run(network.train(training))
        except Exception as error:
            first = next((line for line in str(error).splitlines() if line.strip()), "")
            raise TraceError(
                f"a network is widened by more channels in every layer; {type(model).__name__} does not run with "
                f"them: {type(error).__name__}: {first}: let its code read numbers of channels off the tensor "
                "(x.shape[1]), hold those layers (ignore), or search without widening"
            ) from None
