"""Pairs: a path and the opposite path of its complement, run as one network of full width.

Notation: `l` channels in a group, width `c` and complement `c~ = l - c`. LEFT at `c` keeps the channels `[0, c)`,
RIGHT at `c~` keeps `[c, l)`: together every channel once. With `side(o)` the path that channel `o` belongs to, a
full-width pass with the weights

    W'[o, i] = W[o, i] if side(o) = side(i), else 0

computes both paths at once, since all else in most convolutional networks (batch norm, activations, pooling, additions)
treats channels one by one. A group that is full on both paths (`c = l` is its own complement) appears twice, `2 l`
channels wide; so do the network's outputs, one half for each path.

Four paths take two such passes. These multiply about half as much again as four narrow ones, but at the channel counts
that kernels are made for, and in half as many calls. Whether that pays is a matter of network and device.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils._pytree import tree_leaves, tree_map

from bcnet.space import Side, Widths, WidthSpace
from bcnet.space.layout import Layout, ParameterLayout, Segment
from bcnet.space.narrowing import Narrowing, tensors_of


class UnpairableError(Exception):
    """The paths of this network cannot share a pass; the message says why."""


class Pairs:
    """Runs pairs of disjoint paths of a network, each pair in one pass.

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

    @classmethod
    def verified(cls, network: nn.Module, space: WidthSpace, x: torch.Tensor) -> Pairs:
        """The pairs of `network`, after a comparison with single paths on `x`, shape `(batch, ...)`, in float64.

        Raises:
            UnpairableError: outputs differ, or the model's own code does not run: it couples channels in its forward.
        """
        double = copy.deepcopy(network).double().eval()
        x = x.detach().to(next(double.parameters()))
        pairs, single = cls(double, space), Narrowing(double, space.layouts)
        third = tuple(max(g.unit, g.max_width // 3 // g.unit * g.unit) for g in space.groups)
        mixed = tuple(g.max_width if i % 2 else third[i] for i, g in enumerate(space.groups))
        for left in (third, mixed, space.full):
            right = space.complement(left)
            if not pairs.disjoint(left, right):
                raise UnpairableError("the space's complement overlaps the widths it belongs to (min_ratio)")
            try:
                with torch.no_grad():
                    both = pairs.forward(x, left, right)
                    for output, widths, side in zip(both, (left, right), (Side.LEFT, Side.RIGHT), strict=True):
                        with single.applied(widths, side):
                            _compare(output, double(x))
            except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
                raise UnpairableError(f"the model's own code couples channels: {error}") from error
        return cls(network, space)

    def _check(self, name: str, layout: ParameterLayout) -> None:
        searched = [{segment.group is not None for segment in dim} for dim in layout]
        if any(len(kinds) > 1 for kinds in searched):
            raise UnpairableError(f"{name} holds searched and held channels in one dimension")
        if sum(kinds == {True} for kinds in searched) > 2:
            raise UnpairableError(f"{name} has more than two searched dimensions")

    def disjoint(self, left: Widths, right: Widths) -> bool:
        """Whether LEFT at `left` and RIGHT at `right` are a pair: in every group complements, or both full."""
        groups = zip(left, right, self._space.full, strict=True)
        return all(c + d == full or c == d == full for c, d, full in groups)

    def forward(self, x: Any, left: Widths, right: Widths) -> tuple[Any, Any]:
        """The model's outputs for `x` on LEFT at `left` and on RIGHT at `right`, as two separate passes give them.

        Gradients arrive in the full parameters' `.grad`. Which widths are a pair `disjoint` says.
        """
        assert self.disjoint(left, right), (left, right)
        device = next(self._network.parameters()).device
        sides = [
            torch.arange(c + d, device=device) >= c for c, d in zip(left, right, strict=True)
        ]  # per group, (c + d,): False for LEFT's channels

        def slicing(name: str, tensor: torch.Tensor, _: object) -> torch.Tensor:
            return _paired(tensor, *self._places(name, tensor, sides))

        joint = tuple(c + d for c, d in zip(left, right, strict=True))
        with self._narrowing.applied(joint, Side.LEFT, slicing):
            output = self._network(x)
        return _half(output, 0), _half(output, 1)

    def _places(
        self, name: str, tensor: torch.Tensor, sides: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor | None], torch.Tensor | None]:
        """Where a tensor's elements come from (an index per dimension, None for all in order), and which stay."""
        index: list[torch.Tensor | None] = []
        sided: list[int] = []
        for d, dim in enumerate(self._layouts[name]):
            if self._outputs.get(name) == d:
                index.append(torch.arange(tensor.shape[d], device=tensor.device).repeat(2))
                sided.append(d)
            elif dim[0].group is None:
                index.append(None)
            else:
                index.append(_index(dim, sides, tensor.device))
                sided.append(d)
        if len(sided) < 2:
            return index, None
        first, second = (self._sides_along(name, tensor, d, sides) for d in sided)
        return index, first == second

    def _sides_along(
        self, name: str, tensor: torch.Tensor, d: int, sides: Sequence[torch.Tensor]
    ) -> torch.Tensor:  # (1, ..., elements, ..., 1)
        """The path that each element of a dimension belongs to."""
        if self._outputs.get(name) == d:
            side = torch.arange(2 * tensor.shape[d], device=tensor.device) >= tensor.shape[d]
        else:
            side = torch.cat([sides[_group(s)].repeat_interleave(s.per_channel) for s in self._layouts[name][d]])
        return side.view([-1 if e == d else 1 for e in range(tensor.ndim)])


def _paired(tensor: torch.Tensor, index: list[torch.Tensor | None], mask: torch.Tensor | None) -> torch.Tensor:
    for d, kept in enumerate(index):
        if kept is not None:
            tensor = tensor.index_select(d, kept)
    return tensor if mask is None else tensor * mask


def worthwhile(space: WidthSpace) -> bool:
    """Whether pairs are the faster way: where the layers that do most of the work are narrow.

    The mean width of the groups, weighted by the multiply-adds of the layers that read or make them, is compared with
    64 channels. `benchmarks/` measures both ways on this and other networks.
    """
    terms = space.macs_terms.terms
    work = {groups: count * math.prod(space.full[g] for g in groups) for groups, count in terms.items()}
    widths = {groups: sum(space.full[g] for g in groups) / len(groups) for groups in terms if groups}
    return sum(work[g] * widths[g] for g in widths) <= 64 * sum(work[g] for g in widths)


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


def _group(segment: Segment) -> int:
    assert segment.group is not None
    return segment.group


def _index(dim: Layout, sides: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor | None:
    """The elements of a searched dimension in the order of a pair; None where every element comes once."""
    twice = [len(sides[_group(s)]) * s.per_channel > s.size for s in dim]
    if not any(twice):
        return None
    sizes = [s.size for s in dim]
    every = torch.split(torch.arange(sum(sizes), device=device), sizes)
    return torch.cat([part for part, double in zip(every, twice, strict=True) for _ in range(1 + double)])


def _half(output: Any, which: int) -> Any:
    """The half of every output tensor that belongs to one path, `(batch, 2 n, ...)` to `(batch, n, ...)`."""
    return tree_map(lambda t: t.chunk(2, dim=1)[which] if isinstance(t, torch.Tensor) else t, output)


def _compare(output: Any, expected: Any) -> None:
    for a, b in zip(tree_leaves(output), tree_leaves(expected), strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
