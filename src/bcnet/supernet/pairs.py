"""Pairs: a path and the opposite path of its complement, computed in one full-width pass.

Notation: a group has `l` channels, width `c` and complement `c~ = l - c`. LEFT at `c` keeps the channels `[0, c)`,
RIGHT at `c~` keeps `[c, l)`; together they hold every channel once. Let `side(o)` be the path of channel `o`. A
full-width pass with the weights

    W'[o, i] = W[o, i] if side(o) = side(i), else 0

computes both paths at once, since everything else in most convolutional networks (batch norm, activations, pooling,
additions) treats channels independently. Channels on both paths appear twice. If `c = l`, which is its own complement,
the group is `2 l` wide; if complements have a smallest width `c_min`, it is `l + c_min` wide. The network's outputs
appear twice too, one half per path.

Four paths take two such passes. These need more multiply-adds than four narrow passes, but in half as many calls, at
efficient channel counts, and with nearly constant shapes. Whether pairs are faster depends on network, batch and device
(`are_worthwhile`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils._pytree import tree_map

from bcnet.machine.onednn import UnitStrides
from bcnet.pytree import Pytree, as_float, call_model, check_close, map_tensors
from bcnet.space import Side, Widths, WidthSpace
from bcnet.space.layout import Layout, ParameterLayout, Segment
from bcnet.space.narrowing import Narrowing, tensors_of

_NARROW = 64  # channels
# Costs in equivalent multiply-adds.
_NEW_SHAPES = 2_000_000_000  # of a layer with new shapes
_COPY = 1_500  # of copying one element of a parameter


class UnpairableError(Exception):
    """Paths of this network cannot share a pass; the message gives the reason."""


class Pairs:
    """Runs pairs of complementary paths of a network, each pair in one pass.

    Args:
        network: the supernet's network; it is modified only during a call.
        space: its width space.

    Raises:
        UnpairableError: a dimension of a tensor mixes searched and pinned channels, or three dimensions are searched.
    """

    def __init__(self, network: nn.Module, space: WidthSpace) -> None:
        self._network = network
        self._space = space
        self._outputs = _output_dimensions(network, space.layouts)
        shapes = {name: tensor.shape for name, tensor in tensors_of(network).items()}
        biases = {name: ((Segment(None, shapes[name][0]),),) for name in self._outputs if name not in space.layouts}
        self._layouts: dict[str, ParameterLayout] = {**space.layouts, **biases}
        for name, layout in self._layouts.items():
            self._check(name, layout)
        self._narrowing = Narrowing(network, self._layouts)
        self._cast = _cast_by_autocast(network)
        self._strides = UnitStrides(network)

    @classmethod
    def verify(cls, network: nn.Module, space: WidthSpace, x: Pytree) -> Pairs:
        """Return the pairs of `network` after comparing them with single paths on inputs `x`, in float64.

        Raises:
            UnpairableError: the outputs differ, or the model's own code fails, because its forward couples channels.
        """
        # In float64 a coupling of channels is larger than rounding, at any depth.
        double = copy.deepcopy(network).double().eval()
        x = as_float(map_tensors(torch.Tensor.detach, x), double)
        pairs = cls(double, space)
        single = Narrowing(double, space.layouts, space.numbers)
        # Narrow, mixed and full widths: paths overlap in no group, in some, and in all.
        third = tuple(max(g.choices[0], g.max_width // 3 // g.unit * g.unit) for g in space.groups)
        mixed = tuple(g.max_width if i % 2 else third[i] for i, g in enumerate(space.groups))
        for left in (third, mixed, space.full):
            right = space.complement(left)
            try:
                with torch.no_grad():
                    both = pairs.forward(x, left, right)
                    for output, widths, side in zip(both, (left, right), (Side.LEFT, Side.RIGHT), strict=True):
                        with single.apply(widths, side):
                            check_close(output, call_model(double, x))
            except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
                raise UnpairableError(f"the model's own code couples channels: {error}") from error
        return cls(network, space)

    def _check(self, name: str, layout: ParameterLayout) -> None:
        searched = [{segment.group is not None for segment in dim} for dim in layout]
        if any(len(kinds) > 1 for kinds in searched):
            raise UnpairableError(f"{name} holds searched and held channels in one dimension")
        if sum(kinds == {True} for kinds in searched) > 2:
            raise UnpairableError(f"{name} has more than two searched dimensions")

    def complementary(self, left: Widths, right: Widths) -> bool:
        """Return whether LEFT at `left` and RIGHT at `right` are complements of each other."""
        return right in (self._space.complement(left), self._space.complement(left, bounded=True))

    def forward(self, x: Any, left: Widths, right: Widths) -> tuple[Any, Any]:
        """Return the outputs for `x` on LEFT at `left` and on RIGHT at `right`, equal to those of two separate passes.

        Gradients are accumulated in the full parameters' `.grad`. `complementary` says which widths form a pair.
        """
        assert self.complementary(left, right), (left, right)
        widths = [*zip(left, right, strict=True)]

        def slice_tensor(name: str, tensor: torch.Tensor, _: object) -> torch.Tensor:
            index, mask = self._places(name, tensor, widths)
            for d, kept in enumerate(index):
                if kept is not None:
                    tensor = tensor.index_select(d, kept)
            if name in self._cast and tensor.dtype is torch.float32 and _autocast_on(kind := tensor.device.type):
                tensor = tensor.to(torch.get_autocast_dtype(kind))  # cast before the copy is made
            return tensor if mask is None else tensor * mask

        full = [c + d for c, d in widths]
        with self._narrowing.apply(full, Side.LEFT, slice_tensor), self._strides.apply():
            output = call_model(self._network, x)
        return _take_half(output, 0), _take_half(output, 1)

    def _places(
        self, name: str, tensor: torch.Tensor, widths: Sequence[tuple[int, int]]
    ) -> tuple[list[torch.Tensor | None], torch.Tensor | None]:
        """Return the source index of each element per dimension (None: unchanged), and the mask of kept elements."""
        index: list[torch.Tensor | None] = []
        sided: list[int] = []
        for d, dim in enumerate(self._layouts[name]):
            if self._outputs.get(name) == d:
                # Outputs are pinned: both paths compute all of them, one after the other.
                index.append(torch.arange(tensor.shape[d], device=tensor.device).repeat(2))
                sided.append(d)
            elif dim[0].group is None:
                index.append(None)
            else:
                index.append(_index(dim, widths, tensor.device))
                sided.append(d)
        if len(sided) < 2:
            return index, None
        # A weight between two searched dimensions is block diagonal: no path reads the other's channels.
        first, second = (self._sides_along(name, tensor, d, widths) for d in sided)
        return index, first == second

    def _sides_along(
        self, name: str, tensor: torch.Tensor, d: int, widths: Sequence[tuple[int, int]]
    ) -> torch.Tensor:  # (1, ..., elements, ..., 1)
        """Return the path of each element of a dimension: False for LEFT."""
        if self._outputs.get(name) == d:
            counts = [(tensor.shape[d], tensor.shape[d])]
        else:
            counts = [_elements(segment, widths) for segment in self._layouts[name][d]]
        side = torch.cat([torch.arange(left + right, device=tensor.device) >= left for left, right in counts])
        return side.view([-1 if e == d else 1 for e in range(tensor.ndim)])


def are_worthwhile(space: WidthSpace, batch: int) -> bool:
    """Return whether pairs train faster with batches of `batch` images.

    This holds if the layers with most of the work are narrow: the mean width of the groups, weighted by the
    multiply-adds of the layers that read or produce them, is at most 64 channels. It also holds if new shapes in every
    layer cost single paths more than pairs pay for multiply-adds and copies of weights:

        batch * (2 macs(pair) - 4 macs(mean widths)) + 1500 params <= 2e9 layers

    The constants come from steps measured on two cores (`benchmarks/speed_pairs.py`).
    """
    # Wide layers are bound by arithmetic, of which pairs need more; narrow ones by calls and memory, of which they
    # need less.
    terms = space.macs_terms.terms
    work = {groups: count * math.prod(space.full[g] for g in groups) for groups, count in terms.items()}
    widths = {groups: sum(space.full[g] for g in groups) / len(groups) for groups in terms if groups}
    narrow = sum(work[g] * widths[g] for g in widths) <= _NARROW * sum(work[g] for g in widths)
    return narrow or batch * _more_work(space) + _COPY * space.cost(space.full).params <= _NEW_SHAPES * _layers(space)


def _more_work(space: WidthSpace) -> int:
    """Return the multiply-adds per image of two passes of pairs minus those of four paths, ignoring full groups."""
    least = space.narrowest
    pair = [c + d for c, d in zip(least, space.complement(least), strict=True)]
    mean = [round(sum(group.choices) / len(group.choices)) for group in space.groups]
    # Any pair of complements is as wide as the narrowest path's; single paths are drawn uniformly, hence the mean
    # widths.
    both, narrow = space.macs_terms(np.array([pair, mean]))
    return 2 * int(both) - 4 * int(narrow)


def _layers(space: WidthSpace) -> int:
    return sum(len(layout) > 1 for layout in space.layouts.values())


def _cast_by_autocast(network: nn.Module) -> set[str]:
    """Return the names of the weights that autocast would cast anyway."""
    parts = network.named_modules(remove_duplicate=False)
    return {f"{prefix}.weight" for prefix, part in parts if isinstance(part, (nn.Linear, _ConvNd))}


def _autocast_on(kind: str) -> bool:
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _output_dimensions(network: nn.Module, layouts: Mapping[str, ParameterLayout]) -> dict[str, int]:
    """Return the output dimension of each tensor of the layers from searched inputs to pinned outputs.

    Such layers end the network; a pair needs their outputs twice.
    """
    found: dict[str, int] = {}
    for prefix, part in network.named_modules(remove_duplicate=False):
        name = f"{prefix}.weight" if prefix else "weight"
        if not isinstance(part, (nn.Linear, _ConvNd)) or name not in layouts or getattr(part, "groups", 1) > 1:
            continue
        # A transposed convolution's weight is (in, out, ...).
        out, into = (1, 0) if isinstance(part, _ConvTransposeNd) else (0, 1)
        if layouts[name][out][0].group is None and layouts[name][into][0].group is not None:
            found[name] = out
            if part.bias is not None:
                found[name.removesuffix("weight") + "bias"] = 0
    return found


def _elements(segment: Segment, widths: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the number of a searched segment's elements on each path."""
    assert segment.group is not None
    left, right = widths[segment.group]
    return left * segment.per_channel, right * segment.per_channel


def _index(dim: Layout, widths: Sequence[tuple[int, int]], device: torch.device) -> torch.Tensor | None:
    """Return the elements of a searched dimension in the order of a pair; None if every element appears once."""
    counts = [_elements(segment, widths) for segment in dim]
    # No copy is made where both paths together hold the channels once and in order.
    if all(left + right == segment.size for segment, (left, right) in zip(dim, counts, strict=True)):
        return None
    sizes = [segment.size for segment in dim]
    every = torch.split(torch.arange(sum(sizes), device=device), sizes)
    parts = zip(every, counts, strict=True)
    return torch.cat([part for own, (left, right) in parts for part in (own[:left], own[len(own) - right :])])


def _take_half(output: Any, which: int) -> Any:
    """Return one path's half of every output tensor, `(batch, 2 n, ...)` to `(batch, n, ...)`."""
    return tree_map(lambda t: t.chunk(2, dim=1)[which] if isinstance(t, torch.Tensor) else t, output)
