"""Rules for operators that join dimensions, split them, and shuffle their channels.

Parts that the model's code splits equally must stay equal at every width, so they keep the same channels. Constants in
the code (`x[:, :16]`) are detected by the trial, which runs narrow paths afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bcnet.space.labels import Labels, Propagation
from bcnet.space.rules.shape import divide
from bcnet.space.rules.table import operator_of, out_shape, rule, unknown
from bcnet.space.symbols import Dim

_MOST_SHARES = 16
_PARTS = "channels divided into parts that do not correspond"
BY_NUMBER = "give each part a convolution of its own, or cut with chunk"


@rule("cat", "concat", "concatenate")
def _cat(p: Propagation, node: Any, tensors: Sequence[Labels], dim: int = 0) -> Labels:
    axis = dim % len(tensors[0].shape)
    shape = out_shape(node)
    dims: list[Dim | None] = [None] * len(shape)
    for d in range(len(shape)):
        if d != axis:
            dims[d] = p.join([t.dims[d] for t in tensors], "joined with channels that are pinned at full width")
    if any(t.dims[axis] is not None for t in tensors):
        reason = p.reason("joined channels without a label")
        # A joined dimension is the sequence of its parts' channels; a part without a label is pinned.
        dims[axis] = tuple(piece for t in tensors for piece in t.dims[axis] or p.symbols.new_dim(t.shape[axis], reason))
    return Labels(shape, tuple(dims))


@rule("hstack", "vstack", "row_stack", "dstack", "column_stack")
def _join(p: Propagation, node: Any, tensors: Sequence[Labels]) -> Any:
    axis = {"hstack": 1, "column_stack": 1, "dstack": 2}.get(operator_of(node), 0)
    if min(len(tensor.shape) for tensor in tensors) > axis:
        return _cat(p, node, tensors, axis)
    # Tensors of too few dimensions get more of them.
    return _cat(p, node, tensors, 0) if operator_of(node) == "hstack" else unknown(p, node, tensors)


@rule("stack")
def _stack(p: Propagation, node: Any, tensors: Sequence[Labels], dim: int = 0) -> Labels:
    shape = out_shape(node)
    dims: list[Dim | None] = [
        p.join([t.dims[d] for t in tensors], "joined with channels that are pinned at full width")
        for d in range(len(shape) - 1)
    ]
    dims.insert(dim % len(shape), None)
    return Labels(shape, tuple(dims))


@rule("unbind")
def _unbind(p: Propagation, node: Any, x: Labels, dim: int = 0) -> tuple[Labels, ...]:
    part = _drop_axis(p, x, dim % len(x.shape))
    return (part,) * x.shape[dim]


@rule("select")
def _select(p: Propagation, node: Any, x: Labels, dim: int, index: int) -> Labels:
    return _drop_axis(p, x, dim % len(x.shape))


def _drop_axis(p: Propagation, x: Labels, axis: int) -> Labels:
    """Return the labels without a dimension from which single elements are selected."""
    p.fix(x.dims[axis], p.reason("single channels are picked by their number", BY_NUMBER))
    return x.drop_axis(axis)


@rule("slice")
def _slice(
    p: Propagation, node: Any, x: Labels, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Labels:
    axis = dim % len(x.shape)
    shape = out_shape(node)
    if x.dims[axis] is None or shape == x.shape:
        return Labels(shape, x.dims)
    size = shape[axis]
    first = (start or 0) % x.shape[axis]
    # Code that slices cannot be told from code that splits: equal parts are treated as `chunk`, others as shares if
    # their ends suggest it, and the rest as channels with a meaning of their own.
    if step == 1 and size and x.shape[axis] % size == 0 and first % size == 0:
        return equal_parts(p, x, x.shape[axis] // size, axis)[first // size]
    if step == 1 and size and _is_share([first, size], x.shape[axis]):
        return _shares(p, x, [size], math.gcd(first, size, x.shape[axis]), axis)[0]
    return _pick(p, x, [size], axis, "channels picked by number: the model's code may count on exactly these")[0]


@rule("split", "split_with_sizes")
def _split(p: Propagation, node: Any, x: Labels, sizes: Any, dim: int = 0) -> tuple[Labels, ...]:
    axis = dim % len(x.shape)
    found = [value.shape[axis] for value in node.meta["val"]]
    if x.dims[axis] is None:
        return tuple(Labels(tuple(value.shape), x.dims) for value in node.meta["val"])
    if len(set(found)) == 1:
        return equal_parts(p, x, len(found), axis)
    if _is_share(found, x.shape[axis]):
        return _shares(p, x, found, math.gcd(*found), axis)
    return _pick(p, x, found, axis, "channels split at numbers that the model's code holds")


@rule("hsplit", "vsplit", "dsplit")
def _split_axis(p: Propagation, node: Any, x: Labels, parts: Any) -> tuple[Labels, ...]:
    axis = {"hsplit": int(len(x.shape) > 1), "vsplit": 0, "dsplit": 2}[operator_of(node)]
    found: tuple[Labels, ...] = _split(p, node, x, None, axis)
    return found


@rule("narrow")
def _narrow(p: Propagation, node: Any, x: Labels, dim: int, start: Any, length: int) -> Any:
    if not isinstance(start, int):
        return unknown(p, node, [x])
    first = start % x.shape[dim]
    part: Labels = _slice(p, node, x, dim, first, first + length)
    return part


@rule("chunk", "tensor_split")
def _chunk(p: Propagation, node: Any, x: Labels, chunks: Any, dim: int = 0) -> tuple[Labels, ...]:
    parts: tuple[Labels, ...] = _split(p, node, x, None, dim)
    return parts


@rule("glu")
def _glu(p: Propagation, node: Any, x: Labels, dim: int = -1) -> Labels:
    return equal_parts(p, x, 2, dim % len(x.shape))[0]


def _is_share(sizes: Sequence[int], whole: int) -> bool:
    """Return whether the parts may be multiples of eighths of the whole: code that computes them follows any width."""
    part = math.gcd(*sizes, whole)
    return part > 1 and whole // part <= _MOST_SHARES


def _shares(p: Propagation, x: Labels, sizes: Sequence[int], part: int, axis: int) -> tuple[Labels, ...]:
    """Return parts of the given sizes, each made of several equal parts."""
    p.has_shares = True
    dim = equal_parts(p, x, x.shape[axis] // part, axis)[0].dims[axis]
    return tuple(
        Labels(
            (*x.shape[:axis], size, *x.shape[axis + 1 :]),
            (*x.dims[:axis], None if dim is None else dim * (size // part), *x.dims[axis + 1 :]),
        )
        for size in sizes
    )


def equal_parts(p: Propagation, x: Labels, count: int, axis: int) -> tuple[Labels, ...]:
    """Split a dimension into `count` equal parts, which keep the same channels so that they stay equal.

    If every channel owns a multiple of `count` elements, each part gets its share of every channel's elements (which of
    them does not matter for the sizes).
    """
    dim = x.dims[axis]
    shape = (*x.shape[:axis], x.shape[axis] // count, *x.shape[axis + 1 :])
    part: Dim | None = None
    if dim is not None:
        pieces = p.symbols.resolve(dim)
        if all(piece.repeat % count == 0 for piece in pieces):
            part = tuple(piece._replace(repeat=piece.repeat // count) for piece in pieces)
        else:
            reason = p.reason(_PARTS)
            part, *others = p.symbols.split(dim, [shape[axis]] * count, reason)
            for other in others:
                p.symbols.unify(part, other, reason)
    return (Labels(shape, (*x.dims[:axis], part, *x.dims[axis + 1 :])),) * count


def _pick(p: Propagation, x: Labels, sizes: Sequence[int], axis: int, why: str) -> tuple[Labels, ...]:
    """Return the parts of a dimension that has to be pinned."""
    reason = p.reason(why, BY_NUMBER)
    p.fix(x.dims[axis], reason)
    return tuple(
        Labels(
            (*x.shape[:axis], size, *x.shape[axis + 1 :]),
            (*x.dims[:axis], p.symbols.new_dim(size, reason), *x.dims[axis + 1 :]),
        )
        for size in sizes
    )


@rule("pixel_shuffle")
def _pixel_shuffle(p: Propagation, node: Any, x: Labels, factor: int) -> Labels:
    shape = out_shape(node)
    axis = len(x.shape) - 3
    out = p.symbols.new_dim(shape[axis])
    p.unify(x.dims[axis], (out[0]._replace(repeat=factor**2),), "pixels shuffled out of fixed channels")
    return Labels(shape, x.dims).replace(**{f"d{axis}": out})


@rule("pixel_unshuffle")
def _pixel_unshuffle(p: Propagation, node: Any, x: Labels, factor: int) -> Labels:
    axis = len(x.shape) - 3
    dim = x.dims[axis]
    grown = None if dim is None else p.symbols.repeat(dim, factor**2)
    return Labels(out_shape(node), x.dims).replace(**{f"d{axis}": grown})


@rule("channel_shuffle")
def _channel_shuffle(p: Propagation, node: Any, x: Labels, groups: int) -> Labels:
    dim = x.dims[1]
    if dim is None:
        return x
    part = divide(p, dim, [groups, x.shape[1] // groups])[1]
    shuffled = p.symbols.repeat(part, groups) if part else None
    return x.replace(d1=shuffled)


@rule("getitem")
def _getitem(p: Propagation, node: Any, items: Sequence[Any], index: int) -> Any:
    return items[index]
