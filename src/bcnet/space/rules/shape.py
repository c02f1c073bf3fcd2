"""Rules for operators that reshape and reorder dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bcnet.space.labels import Labels, Propagation
from bcnet.space.rules.table import axes_of, out_shape, rule
from bcnet.space.symbols import Dim, Piece

_MERGED = "dimensions merged in a way that leaves no runs of channels"
MAX_PIECES = 4096  # flattening with channels last repeats its pieces for every position


@rule("flatten", "view", "reshape", "_unsafe_view", "unflatten", "reshape_as", "view_as", "ravel")
def _reshape(p: Propagation, node: Any, x: Labels, *rest: Any) -> Labels:
    shape = out_shape(node)
    dims: list[Dim | None] = []
    for old, new in _matching_blocks(x.shape, shape):
        dims += _reshape_block(p, x, old, [shape[d] for d in new])
    return Labels(shape, tuple(dims))


def _matching_blocks(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the finest blocks of consecutive dimensions with equal products in both shapes."""
    blocks: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left = []
        right = []
        a = b = 1
        if i < len(old):
            left = [i]
            a = old[i]
            i = i + 1
        if j < len(new):
            right = [j]
            b = new[j]
            j = j + 1
        while a != b:
            if a < b:
                left.append(i)
                a = a * old[i]
                i = i + 1
            else:
                right.append(j)
                b = b * new[j]
                j = j + 1
        blocks.append((left, right))
    return blocks


def _reshape_block(p: Propagation, x: Labels, old: list[int], sizes: list[int]) -> list[Dim | None]:
    labelled = [d for d in old if x.dims[d] is not None and x.shape[d] > 1]
    if not labelled:
        return [None] * len(sizes)
    if len(labelled) > 1:  # pinned dimensions count as positions, and only one dimension can be searched: the widest
        widest = max(labelled, key=lambda d: (not _is_pinned(p, x.dims[d]), x.shape[d]))
        for d in labelled:
            if d != widest:
                p.fix(x.dims[d], p.reason(_MERGED))
        labelled = labelled if _is_pinned(p, x.dims[widest]) else [widest]
    dim = _merge(p, x, [d for d in old if x.shape[d] > 1], labelled)
    wide = [k for k, size in enumerate(sizes) if size > 1]
    if len(wide) <= 1:
        return [dim if k in wide else None for k in range(len(sizes))]
    parts = divide(p, dim, [sizes[k] for k in wide])
    return [parts[wide.index(k)] if k in wide else None for k in range(len(sizes))]


def _is_pinned(p: Propagation, dim: Dim | None) -> bool:
    return dim is not None and all(p.symbols.reason(piece.variable) for piece in p.symbols.resolve(dim))


def _merge(p: Propagation, x: Labels, old: list[int], labelled: list[int]) -> Dim:
    """Merge dimensions: `repeat` grows by the sizes after the channels, copies by those before."""
    channel = labelled[0]
    dim = x.dims[channel]
    assert dim is not None
    before = math.prod(x.shape[d] for d in old if d < channel)
    behind = math.prod(x.shape[d] for d in old if d > channel)
    if len(labelled) > 1 or before * len(p.symbols.resolve(dim)) > MAX_PIECES:
        reason = p.reason(_MERGED)
        for d in labelled:
            p.fix(x.dims[d], reason)
        return p.symbols.new_dim(math.prod(x.shape[d] for d in old), reason)
    return p.symbols.repeat(dim, behind) * before


def divide(p: Propagation, dim: Dim, sizes: list[int]) -> list[Dim | None]:
    """Split one dimension into several.

    Channels go to the first one if atoms stay whole, otherwise to the last one, in equal parts. With `channels_first`
    they go to the first one, in consecutive runs.
    """
    behind = math.prod(sizes[1:])
    pieces = p.symbols.resolve(dim)
    if all(piece.repeat % behind == 0 for piece in pieces):
        head: Dim = tuple(Piece(v, atoms, repeat // behind) for v, atoms, repeat in pieces)
        return [head] + [None] * (len(sizes) - 1)
    p.has_divided = True
    if p.channels_first:
        shared = p.symbols.new_dim(sizes[0])[0]
        reason = p.reason("channels divided into runs that do not correspond")
        p.symbols.unify(dim, (shared._replace(repeat=behind),), reason)
        return [p.symbols.resolve((shared,))] + [None] * (len(sizes) - 1)
    reason = p.reason("channels divided into parts that do not correspond")
    parts = p.symbols.split(dim, [sizes[-1]] * math.prod(sizes[:-1]), reason)
    for part in parts[1:]:
        p.symbols.unify(parts[0], part, reason)
    return [None] * (len(sizes) - 1) + [p.symbols.resolve(parts[0])]


@rule("permute")
def _permute(p: Propagation, node: Any, x: Labels, order: Sequence[int]) -> Labels:
    return Labels(out_shape(node), tuple(x.dims[d] for d in order))


@rule("movedim", "moveaxis")
def _movedim(p: Propagation, node: Any, x: Labels, source: Any, target: Any) -> Labels:
    sources, targets = ([d] if isinstance(d, int) else list(d) for d in (source, target))
    rank = len(x.shape)
    moved = {t % rank: s % rank for s, t in zip(sources, targets, strict=True)}
    others = iter(d for d in range(rank) if d not in moved.values())
    return Labels(out_shape(node), tuple(x.dims[moved[d] if d in moved else next(others)] for d in range(rank)))


@rule("transpose", "swapaxes", "swapdims", "transpose_", "swapaxes_", "swapdims_")
def _transpose(p: Propagation, node: Any, x: Labels, a: int, b: int) -> Labels:
    dims = list(x.dims)
    dims[a], dims[b] = dims[b], dims[a]
    return Labels(out_shape(node), tuple(dims))


@rule("t", "numpy_T", "matrix_H", "mT", "mH", "adjoint")
def _t(p: Propagation, node: Any, x: Labels) -> Labels:
    last = x.dims[-2:][::-1] if str(node.target) != "aten.numpy_T.default" else x.dims[::-1]
    return Labels(out_shape(node), (*x.dims[: len(x.dims) - len(last)], *last))


@rule("unsqueeze", "unsqueeze_")
def _unsqueeze(p: Propagation, node: Any, x: Labels, dim: int) -> Labels:
    dims = list(x.dims)
    dims.insert(dim % (len(dims) + 1), None)
    return Labels(out_shape(node), tuple(dims))


@rule("squeeze", "squeeze_")
def _squeeze(p: Propagation, node: Any, x: Labels, dim: int | Sequence[int] | None = None) -> Labels:
    gone = {d % len(x.shape) for d in axes_of(x, dim) if x.shape[d] == 1}
    return Labels(out_shape(node), tuple(label for d, label in enumerate(x.dims) if d not in gone))


@rule("expand", "broadcast_to")
def _expand(p: Propagation, node: Any, x: Labels, *rest: Any, **options: Any) -> Labels:
    shape = out_shape(node)
    new = len(shape) - len(x.shape)
    dims: list[Dim | None] = []
    for d, size in enumerate(shape):
        if d >= new and x.shape[d - new] == size:
            dims.append(x.dims[d - new])
        else:  # the batch has no labels
            dims.append(p.label_made(size) if d > 0 else None)
    return Labels(shape, tuple(dims))
