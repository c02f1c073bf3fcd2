"""Rules for operators that move, repeat, sort, accumulate or select elements along a dimension.

Along a dimension without channels, labels are unchanged. Along channels, an operator may only keep their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bcnet.space.labels import Labels, Propagation
from bcnet.space.rules.parts import BY_NUMBER
from bcnet.space.rules.pointwise import broadcast
from bcnet.space.rules.table import operator_of, out_shape, rule, unknown
from bcnet.space.symbols import Dim, Reason


@rule("cumsum", "cumprod", "cumsum_", "cumprod_", "cummax", "cummin", "logcumsumexp", "flip", "sort", "argsort")
def _keep_sizes(p: Propagation, node: Any, x: Labels, *rest: Any, dim: Any = -1, **options: Any) -> Any:
    """Return the labels of an operator that keeps the size of a dimension; it may permute channels of a whole group."""
    named = next((r for r in rest if isinstance(r, (int, list, tuple)) and not isinstance(r, bool)), dim)
    kept = _pin_mixed_groups(p, x, [named] if isinstance(named, int) else named, "channels that change places")
    value = node.meta["val"]
    return (kept,) * len(value) if isinstance(value, (tuple, list)) else kept


@rule("fliplr", "flipud", "msort")
def _turn(p: Propagation, node: Any, x: Labels) -> Labels:
    return _pin_mixed_groups(p, x, [int(operator_of(node) == "fliplr")], "channels that change places")


@rule("roll")
def _roll(p: Propagation, node: Any, x: Labels, shifts: Any, dims: Sequence[int] = ()) -> Labels:
    return _pin_mixed_groups(p, x, dims or range(len(x.shape)), "channels that change places")


@rule("rot90")
def _rot90(p: Propagation, node: Any, x: Labels, k: int = 1, dims: Sequence[int] = (0, 1)) -> Labels:
    turned = list(_pin_mixed_groups(p, x, dims, "channels that change places").dims)
    if k % 2:
        first, second = dims
        turned[first], turned[second] = turned[second], turned[first]
    return Labels(out_shape(node), tuple(turned))


def _pin_mixed_groups(p: Propagation, x: Labels, axes: Sequence[int], why: str) -> Labels:
    """Return the labels, pinned if a dimension holds more than one group, since its parts would change places."""
    for axis in axes:
        dim = x.dims[axis]
        if dim is not None and len(p.symbols.resolve(dim)) > 1:
            p.fix(dim, p.reason(why))
    return x


@rule("repeat", "tile")
def _repeat(p: Propagation, node: Any, x: Labels, times: Sequence[int]) -> Labels:
    shape = out_shape(node)
    new = len(shape) - len(x.shape)
    counts = (1,) * (len(shape) - len(times)) + tuple(times)
    dims: list[Dim | None] = [None] * new
    for d, (size, dim, count) in enumerate(zip(x.shape, x.dims, counts[new:], strict=True), new):
        if d > 0 and size == 1 < count:
            dims.append(p.label_made(count))
        else:
            dims.append(None if dim is None else dim * count)
    return Labels(shape, tuple(dims))


@rule("repeat_interleave")
def _repeat_interleave(p: Propagation, node: Any, x: Labels, times: Any, dim: int | None = None, **options: Any) -> Any:
    if not isinstance(times, int) or dim is None:
        return unknown(p, node, [x])
    held = x.dims[dim]
    grown = None if held is None else p.symbols.repeat(held, times)
    return Labels(out_shape(node), x.dims).replace(**{f"d{dim % len(x.shape)}": grown})


@rule("topk")
def _topk(p: Propagation, node: Any, x: Labels, k: int, dim: int = -1, *rest: Any) -> tuple[Labels, ...]:
    picked = _pick(p, node, x, dim, tuple(node.meta["val"][0].shape))
    return picked, picked  # values and their indices


@rule("index_select", "unfold")
def _select(p: Propagation, node: Any, x: Labels, dim: int, *rest: Any) -> Labels:
    return _pick(p, node, x, dim, out_shape(node))


@rule("index")
def _index(p: Propagation, node: Any, x: Labels, indices: Sequence[Any]) -> Any:
    """Handle `x[:, indices]`: one index keeps the order of dimensions, several move theirs to the front."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or not isinstance(given[0][1], Labels) or len(given[0][1].shape) != 1:
        return unknown(p, node, [x, *(index for _, index in given if isinstance(index, Labels))])
    return _pick(p, node, x, given[0][0], out_shape(node))


def _reason_of_numbers(p: Propagation) -> Reason:
    return p.reason("channels picked by number: the model's code may count on these", BY_NUMBER)


def _pick(p: Propagation, node: Any, x: Labels, axis: int, shape: tuple[int, ...]) -> Labels:
    """Select elements along a dimension: channels there are pinned, other dimensions keep their labels.

    Further dimensions of the result hold no channels.
    """
    p.fix(x.dims[axis], _reason_of_numbers(p))
    kept = [None if d == axis % len(x.shape) else dim for d, dim in enumerate(x.dims)]
    return Labels(shape, (*kept, *(None for _ in shape[len(kept) :])))


@rule("diff")
def _diff(p: Propagation, node: Any, x: Labels, n: int = 1, dim: int = -1, *rest: Any) -> Labels:
    if any(isinstance(joined, Labels) for joined in rest):
        return unknown(p, node, [x, *(joined for joined in rest if isinstance(joined, Labels))])  # type: ignore[no-any-return]
    return _pick(p, node, x, dim, out_shape(node))


@rule("diagonal")
def _diagonal(p: Propagation, node: Any, x: Labels, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Labels:
    gone = {dim1 % len(x.shape), dim2 % len(x.shape)}
    for axis in gone:
        p.fix(x.dims[axis], _reason_of_numbers(p))
    return Labels(out_shape(node), (*(dim for d, dim in enumerate(x.dims) if d not in gone), None))


@rule("diag_embed")
def _diag_embed(p: Propagation, node: Any, x: Labels, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    rank = len(x.shape) + 1
    if {dim1 % rank, dim2 % rank} != {rank - 2, rank - 1}:
        return unknown(p, node, [x])
    p.fix(x.dims[-1], _reason_of_numbers(p))
    return Labels(out_shape(node), (*x.dims[:-1], None, None))


@rule("searchsorted")
def _search_sorted(p: Propagation, node: Any, limits: Labels, x: Any, *rest: Any, **options: Any) -> Any:
    if len(limits.shape) != 1 or not isinstance(x, Labels):
        return unknown(p, node, [tensor for tensor in (limits, x) if isinstance(tensor, Labels)])
    p.fix(limits.dims[0], p.reason("limits of ranges"))
    return x


@rule("gather", "take_along_dim")
def _gather(p: Propagation, node: Any, x: Labels, *rest: Any, **options: Any) -> Any:
    """Handle elements looked up along one dimension; the others have the channels of tensor and indices."""
    numbers = next(r for r in rest if isinstance(r, Labels))
    axis = options.get("dim", next((r for r in rest if isinstance(r, int) and not isinstance(r, bool)), None))
    if axis is None:
        return unknown(p, node, [x, numbers])
    return _at_numbers(p, node, axis, x, numbers)


@rule(
    *("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "index_add"),
    *("index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_"),
)
def _scatter(p: Propagation, node: Any, x: Labels, axis: int, numbers: Labels, *rest: Any, **options: Any) -> Labels:
    """Handle elements written or added along one dimension; the others have the channels of all tensors."""
    given = [r for r in (numbers, *rest) if isinstance(r, Labels) and len(r.shape) == len(x.shape)]
    return _at_numbers(p, node, axis, x, *given)


def _at_numbers(p: Propagation, node: Any, axis: int, x: Labels, *given: Labels) -> Labels:
    """Tie the dimensions of tensors of equal rank, except `axis`, along which channels are pinned."""
    shape = out_shape(node)
    axis %= len(shape)
    reason = _reason_of_numbers(p)
    dims: list[Dim | None] = []
    for d, size in enumerate(shape):
        met = [tensor.dims[d] for tensor in (x, *given) if tensor.shape[d] == size]
        if d == axis or size != x.shape[d]:
            for tensor in (x, *given):
                p.fix(tensor.dims[d], reason)
            dims.append(None)
        else:
            dims.append(p.join(met, "meets channels that are pinned at full width or have no label"))
    return Labels(shape, tuple(dims))


@rule("index_put", "index_put_")
def _masked_put(p: Propagation, node: Any, x: Labels, indices: Sequence[Any], values: Any, *rest: Any) -> Any:
    """Handle values written where a mask of the tensor's own shape is set."""
    mask = indices[0]
    if len(indices) != 1 or not isinstance(mask, Labels) or mask.shape != x.shape or values.shape not in ((), (1,)):
        return unknown(p, node, [labels for labels in (x, *indices, values) if isinstance(labels, Labels)])
    return broadcast(p, node, x, mask)


@rule("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(p: Propagation, node: Any, x: Labels, grid: Labels, *rest: Any) -> Labels:
    for dim in (*grid.dims, *x.dims[2:]):
        p.fix(dim, p.reason("positions that are looked up"))
    shape = out_shape(node)
    return Labels(shape, (*x.dims[:2], *(None for _ in shape[2:])))


@rule("max_unpool2d", "max_unpool3d")
def _unpool(p: Propagation, node: Any, x: Labels, places: Labels, *rest: Any) -> Labels:
    for one, other in zip(x.dims[:2], places.dims[:2], strict=True):
        p.unify(one, other, "goes back to the places of channels that are pinned at full width")
    shape = out_shape(node)
    return Labels(shape, (*x.dims[:2], *(None for _ in shape[2:])))


@rule("im2col")
def _im2col(p: Propagation, node: Any, x: Labels, kernel: Sequence[int], *rest: Any) -> Labels:
    """Every channel becomes the elements of its windows, side by side."""
    window = kernel[0] * kernel[1]
    dim = x.dims[-3]
    grown = None if dim is None else p.symbols.repeat(dim, window)
    return Labels(out_shape(node), (*x.dims[:-3], grown, None))


@rule("col2im")
def _col2im(p: Propagation, node: Any, x: Labels, size: Any, kernel: Sequence[int], *rest: Any) -> Labels:
    shape = out_shape(node)
    out = p.symbols.new_dim(shape[-3])
    p.unify(x.dims[-2], (out[0]._replace(repeat=kernel[0] * kernel[1]),), "windows of channels that are pinned")
    return Labels(shape, (*x.dims[:-2], out, None, None))


@rule("cosine_similarity")
def _cosine(p: Propagation, node: Any, x: Labels, y: Labels, dim: int = 1, eps: float = 0.0) -> Labels:
    axis = dim % len(x.shape)
    for d, (one, other) in enumerate(zip(x.dims, y.dims, strict=True)):
        if x.shape[d] == y.shape[d] > 1:
            p.unify(one, other, "is compared with channels that are pinned at full width")
    return Labels(out_shape(node), x.drop_axis(axis).dims)


@rule("new_zeros", "new_ones", "new_full", "new_empty", "sym_size")
def _make_like(p: Propagation, node: Any, x: Labels, *rest: Any, **options: Any) -> Any:
    """Return new labels for an operator that copies dtype and device of a tensor, but no elements."""
    value = node.meta["val"]
    return p.label_new(value) if hasattr(value, "shape") else value
