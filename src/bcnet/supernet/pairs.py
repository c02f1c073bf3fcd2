"""Pairs: a path and the opposite path of its complement, run as one network of full width.

Notation: `l` channels in a group, width `c` and complement `c~ = l - c`. LEFT at `c` keeps the channels `[0, c)`,
RIGHT at `c~` keeps `[c, l)`: together every channel once. With `side(o)` the path that channel `o` belongs to, a
full-width pass with the weights

    W'[o, i] = W[o, i] if side(o) = side(i), else 0

computes both paths at once, since all else in most convolutional networks (batch norm, activations, pooling, additions)
treats channels one by one. Channels that are on both paths appear twice: where `c = l` is its own complement the group
is `2 l` wide, where complements keep to a smallest width `c_min`, `l + c_min`. The network's outputs appear twice too,
one half for each path.

Four paths take two such passes. These multiply more than four narrow ones, but at the channel counts that kernels are
made for, in half as many calls, and in the same shapes nearly every time. Whether that pays is a matter of network,
batch and device (`worthwhile`).
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

from bcnet.machine.strides import UnitStrides
from bcnet.nests import Nest, as_float, call_network, check_close, map_tensors
from bcnet.space import Side, Widths, WidthSpace
from bcnet.space.layout import Layout, ParameterLayout, Segment
from bcnet.space.narrowing import Narrowing, tensors_of

_NARROW = 64  # channels
# Multiply-adds that take as long.
_NEW_SHAPES = 2_000_000_000  # as a layer of shapes not met before
_COPY = 1_500  # as the copy of a parameter's element


class UnpairableError(Exception):
    """The paths of this network cannot share a pass; the message says why."""


class Pairs:
    """Runs pairs of complementary paths of a network, each pair in one pass.

    Args:
        network: the supernet's network; it is changed only within a call.
        space: its width space.

    Raises:
        UnpairableError: a tensor that holds searched and held channels in one dimension, or searched ones in three.
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
    def verify(cls, network: nn.Module, space: WidthSpace, x: Nest) -> Pairs:
        """The pairs of `network`, after a comparison with single paths on inputs `x`, in float64.

        Raises:
            UnpairableError: outputs differ, or the model's own code does not run: it couples channels in its forward.
        """
        # In float64 a coupling of channels stands out from rounding, however deep the network.
        double = copy.deepcopy(network).double().eval()
        x = as_float(map_tensors(torch.Tensor.detach, x), double)
        pairs = cls(double, space)
        single = Narrowing(double, space.layouts, space.numbers)
        # Narrow, mixed and full widths: paths that overlap in no group, in some, and in all.
        third = tuple(max(g.choices[0], g.max_width // 3 // g.unit * g.unit) for g in space.groups)
        mixed = tuple(g.max_width if i % 2 else third[i] for i, g in enumerate(space.groups))
        for left in (third, mixed, space.full):
            right = space.complement(left)
            try:
                with torch.no_grad():
                    both = pairs.forward(x, left, right)
                    for output, widths, side in zip(both, (left, right), (Side.LEFT, Side.RIGHT), strict=True):
                        with single.apply(widths, side):
                            check_close(output, call_network(double, x))
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
        """Return whether LEFT at `left` and RIGHT at `right` are a pair: complements of each other."""
        return right in (self._space.complement(left), self._space.complement(left, bounded=True))

    def forward(self, x: Any, left: Widths, right: Widths) -> tuple[Any, Any]:
        """The model's outputs for `x` on LEFT at `left` and on RIGHT at `right`, as two separate passes give them.

        Gradients arrive in the full parameters' `.grad`. Which widths are a pair `complementary` says.
        """
        assert self.complementary(left, right), (left, right)
        widths = [*zip(left, right, strict=True)]

        def slice_tensor(name: str, tensor: torch.Tensor, _: object) -> torch.Tensor:
            index, mask = self._places(name, tensor, widths)
            for d, kept in enumerate(index):
                if kept is not None:
                    tensor = tensor.index_select(d, kept)
            if name in self._cast and tensor.dtype is torch.float32 and _autocast_on(kind := tensor.device.type):
                tensor = tensor.to(torch.get_autocast_dtype(kind))  # before the copy is made, not of the copy
            return tensor if mask is None else tensor * mask

        full = [c + d for c, d in widths]
        with self._narrowing.apply(full, Side.LEFT, slice_tensor), self._strides.apply():
            output = call_network(self._network, x)
        return _half(output, 0), _half(output, 1)

    def _places(
        self, name: str, tensor: torch.Tensor, widths: Sequence[tuple[int, int]]
    ) -> tuple[list[torch.Tensor | None], torch.Tensor | None]:
        """Return the origin of a tensor's elements (an index per dimension, None for all in order), and which stay."""
        index: list[torch.Tensor | None] = []
        sided: list[int] = []
        for d, dim in enumerate(self._layouts[name]):
            if self._outputs.get(name) == d:
                # Outputs are pinned: both paths make all of them, one after the other.
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
        """The path that each element of a dimension belongs to: False for LEFT."""
        if self._outputs.get(name) == d:
            counts = [(tensor.shape[d], tensor.shape[d])]
        else:
            counts = [_elements(segment, widths) for segment in self._layouts[name][d]]
        side = torch.cat([torch.arange(left + right, device=tensor.device) >= left for left, right in counts])
        return side.view([-1 if e == d else 1 for e in range(tensor.ndim)])


def worthwhile(space: WidthSpace, batch: int) -> bool:
    """Return whether pairs are the faster way to train with batches of `batch` images.

    They are where the layers that do most of the work are narrow: the mean width of the groups, weighted by the
    multiply-adds of the layers that read or make them, is at most 64 channels. And where slices pay more for new shapes
    in every layer than pairs do for multiply-adds and copies of weights:

        batch * (2 macs(pair) - 4 macs(mean widths)) + 1500 params <= 2e9 layers

    The constants come from steps on two cores (`benchmarks/speed_pairs.py`).
    """
    terms = space.macs_terms.terms
    work = {groups: count * math.prod(space.full[g] for g in groups) for groups, count in terms.items()}
    widths = {groups: sum(space.full[g] for g in groups) / len(groups) for groups in terms if groups}
    narrow = sum(work[g] * widths[g] for g in widths) <= _NARROW * sum(work[g] for g in widths)
    return narrow or batch * _more_work(space) + _COPY * space.cost(space.full).params <= _NEW_SHAPES * _layers(space)


def _more_work(space: WidthSpace) -> int:
    """Multiply-adds for one image of two passes of pairs, less those of four paths; full groups left aside."""
    least = space.narrowest
    pair = [c + d for c, d in zip(least, space.complement(least), strict=True)]
    mean = [round(sum(group.choices) / len(group.choices)) for group in space.groups]
    both, narrow = space.macs_terms(np.array([pair, mean]))
    return 2 * int(both) - 4 * int(narrow)


def _layers(space: WidthSpace) -> int:
    return sum(len(layout) > 1 for layout in space.layouts.values())


def _cast_by_autocast(network: nn.Module) -> set[str]:
    """The weights that autocast would turn into its own precision anyway."""
    parts = network.named_modules(remove_duplicate=False)
    return {f"{prefix}.weight" for prefix, part in parts if isinstance(part, (nn.Linear, _ConvNd))}


def _autocast_on(kind: str) -> bool:
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _output_dimensions(network: nn.Module, layouts: Mapping[str, ParameterLayout]) -> dict[str, int]:
    """The dimension that counts a layer's outputs, for the tensors of layers from searched inputs to held outputs.

    Such layers end the network: a pair needs their outputs twice.
    """
    found: dict[str, int] = {}
    for prefix, part in network.named_modules(remove_duplicate=False):
        name = f"{prefix}.weight" if prefix else "weight"
        if not isinstance(part, (nn.Linear, _ConvNd)) or name not in layouts or getattr(part, "groups", 1) > 1:
            continue
        out, into = (1, 0) if isinstance(part, _ConvTransposeNd) else (0, 1)
        if layouts[name][out][0].group is None and layouts[name][into][0].group is not None:
            found[name] = out
            if part.bias is not None:
                found[name.removesuffix("weight") + "bias"] = 0
    return found


def _elements(segment: Segment, widths: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return how many of a searched segment's elements each path has."""
    assert segment.group is not None
    left, right = widths[segment.group]
    return left * segment.per_channel, right * segment.per_channel


def _index(dim: Layout, widths: Sequence[tuple[int, int]], device: torch.device) -> torch.Tensor | None:
    """The elements of a searched dimension in the order of a pair; None where every element comes once."""
    counts = [_elements(segment, widths) for segment in dim]
    if all(left + right == segment.size for segment, (left, right) in zip(dim, counts, strict=True)):
        return None
    sizes = [segment.size for segment in dim]
    every = torch.split(torch.arange(sum(sizes), device=device), sizes)
    parts = zip(every, counts, strict=True)
    return torch.cat([part for own, (left, right) in parts for part in (own[:left], own[len(own) - right :])])


def _half(output: Any, which: int) -> Any:
    """The half of every output tensor that belongs to one path, `(batch, 2 n, ...)` to `(batch, n, ...)`."""
    return tree_map(lambda t: t.chunk(2, dim=1)[which] if isinstance(t, torch.Tensor) else t, output)
