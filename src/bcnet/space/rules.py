"""One rule per operator: how channel labels pass through it, and which dimensions it ties together.

A rule takes the propagation, the graph node and the node's arguments with every tensor replaced by its `Labels`, and
returns the labels of the result. `@rule(names)` enters it into the table; an operator without a rule fixes what it
touches. To teach the library a new operator, add a rule here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bcnet.space.symbols import Dim, Piece, Reason

if TYPE_CHECKING:
    from bcnet.space.propagation import Propagation

MAX_PIECES = 4096  # a flatten with the channels last repeats its pieces for every position


@dataclass(frozen=True)
class Labels:
    """Shape of a tensor and, per dimension, the channels it holds (None: no channels, e.g. batch and space)."""

    shape: tuple[int, ...]
    dims: tuple[Dim | None, ...]

    def replace(self, **changes: Dim | None) -> Labels:
        """The same labels with other dimensions, given as `d1=...`."""
        dims = list(self.dims)
        for key, dim in changes.items():
            dims[int(key[1:])] = dim
        return Labels(self.shape, tuple(dims))


Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Enter a rule for the ATen operators of these names (without overload)."""

    def enter(function: Rule) -> Rule:
        for operator in operators:
            RULES[operator] = function
        return function

    return enter


def _out_shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


# ---------------------------------------------------------------- multiply-adds


@rule("conv1d", "conv2d", "conv3d")
def _conv(
    p: Propagation, node: Any, x: Labels, weight: Labels, bias: Labels | None = None,
    stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Labels:  # fmt: skip
    channel = len(x.shape) - len(weight.shape) + 1
    out = _grouped(p, x, channel, weight, 0, 1, groups) if groups > 1 else _dense(p, x, channel, weight, 0, 1)
    return _finish_conv(p, node, channel, out, weight, bias, positions=math.prod(_out_shape(node)) // weight.shape[0])


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(
    p: Propagation, node: Any, x: Labels, weight: Labels, bias: Labels | None = None,
    stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Labels:  # fmt: skip
    channel = len(x.shape) - len(weight.shape) + 1
    if groups > 1:
        out = _grouped(p, x, channel, weight, 0, 0, groups, out_size=weight.shape[1] * groups)
        p.fix(weight.dims[1], p.silent)
    else:
        out = _dense(p, x, channel, weight, 1, 0)
    return _finish_conv(p, node, channel, out, weight, bias, positions=math.prod(x.shape) // x.shape[channel])


def _dense(p: Propagation, x: Labels, channel: int, weight: Labels, out_dim: int, in_dim: int) -> Dim:
    p.unify(weight.dims[in_dim], x.dims[channel], "reads channels that are held at full width")
    out = weight.dims[out_dim]
    assert out is not None
    p.birth(out, weight)
    return out


def _grouped(
    p: Propagation, x: Labels, channel: int, weight: Labels, held: int, within: int, groups: int, out_size: int = 0
) -> Dim:
    """Group convolution in whole groups: group `i` of the inputs, of the weight and of the outputs live together."""
    shared = p.symbols.fresh(groups)[0]
    out_size = out_size or weight.shape[held]
    text = "the channels of a convolution group cannot be told apart here"
    p.unify(x.dims[channel], (shared._replace(repeat=x.shape[channel] // groups),), text)
    p.unify(weight.dims[held], (shared._replace(repeat=weight.shape[held] // groups),), text)
    if within != held:
        p.fix(weight.dims[within], p.silent)
    out = (shared._replace(repeat=out_size // groups),)
    p.birth(out, weight)
    return out


def _finish_conv(
    p: Propagation, node: Any, channel: int, out: Dim, weight: Labels, bias: Labels | None, positions: int
) -> Labels:
    if bias is not None:
        p.unify(bias.dims[0], out, "bias")
    for kernel in weight.dims[2:]:
        p.fix(kernel, p.silent)
    p.count_macs(positions, weight)
    shape = _out_shape(node)
    return Labels(shape, tuple(out if d == channel else None for d in range(len(shape))))


@rule("linear")
def _linear(p: Propagation, node: Any, x: Labels, weight: Labels, bias: Labels | None = None) -> Labels:
    out = _dense(p, x, len(x.shape) - 1, weight, 0, 1)
    if bias is not None:
        p.unify(bias.dims[0], out, "bias")
    p.count_macs(math.prod(x.shape[:-1]), weight)
    return Labels(_out_shape(node), (*x.dims[:-1], out))


# ---------------------------------------------------------------- normalisation


@rule("batch_norm", "instance_norm")
def _channel_norm(
    p: Propagation, node: Any, x: Labels, weight: Labels | None, bias: Labels | None,
    mean: Labels | None, variance: Labels | None, *rest: Any,
) -> Labels:  # fmt: skip
    for part in (weight, bias, mean, variance):
        if part is not None:
            p.unify(x.dims[1], part.dims[0], "normalises channels that are held at full width")
    return x


@rule("group_norm")
def _group_norm(
    p: Propagation, node: Any, x: Labels, groups: int, weight: Labels | None = None, bias: Labels | None = None, *rest: Any
) -> Labels:  # fmt: skip
    if groups > 1:
        whole = (p.symbols.fresh(groups)[0]._replace(repeat=x.shape[1] // groups),)
        p.unify(x.dims[1], whole, "the channels of a normalisation group cannot be told apart here")
        if weight is None:
            p.fix(x.dims[1], p.reason("a group norm without parameters does not adapt to narrower inputs"))
    for part in (weight, bias):
        if part is not None:
            p.unify(x.dims[1], part.dims[0], "normalises channels that are held at full width")
    return x


@rule("layer_norm", "rms_norm")
def _layer_norm(
    p: Propagation, node: Any, x: Labels, shape: Sequence[int], weight: Labels | None = None, bias: Any = None, *rest: Any
) -> Labels:  # fmt: skip
    first = len(x.shape) - len(shape)
    for d in range(first, len(x.shape)):
        if weight is None:
            p.fix(x.dims[d], p.reason("a layer norm without parameters does not adapt to narrower inputs"))
        for part in (weight, bias):
            if isinstance(part, Labels):
                p.unify(x.dims[d], part.dims[d - first], "normalises channels that are held at full width")
    return x


# ---------------------------------------------------------------- element by element


@rule(
    "relu", "relu_", "relu6", "hardtanh", "hardtanh_", "silu", "silu_", "gelu", "sigmoid", "sigmoid_", "hardswish",
    "hardswish_", "hardsigmoid", "hardsigmoid_", "tanh", "tanh_", "elu", "elu_", "selu", "selu_", "celu", "celu_",
    "leaky_relu", "leaky_relu_", "mish", "mish_", "softplus", "softsign", "log_sigmoid", "exp", "log", "sqrt", "rsqrt",
    "abs", "neg", "erf", "reciprocal", "square", "clamp", "clamp_", "clamp_min", "clamp_min_", "clamp_max", "round",
    "floor", "ceil", "sign", "dropout", "dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout",
    "feature_alpha_dropout", "clone", "contiguous", "alias", "detach", "detach_", "to", "_to_copy", "type_as",
    "lift_fresh_copy", "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "full_like", "softmax",
    "log_softmax", "_softmax", "bernoulli", "bernoulli_", "fill_", "zero_", "nan_to_num", "logical_not", "bitwise_not",
    "threshold", "threshold_", "hardshrink", "softshrink", "log1p", "expm1", "sin", "cos", "normal_",
    "uniform_",
)  # fmt: skip
def _same(p: Propagation, node: Any, x: Labels, *rest: Any, **options: Any) -> Labels:
    return x


@rule(
    "add", "add_", "sub", "sub_", "rsub", "mul", "mul_", "div", "div_", "true_divide", "maximum", "minimum", "pow", "pow_",
    "where", "lerp", "addcmul", "addcdiv", "eq", "ne", "gt", "ge", "lt", "le", "logical_and", "logical_or", "bitwise_and",
    "masked_fill", "masked_fill_", "atan2", "fmod", "remainder", "copy_",
)  # fmt: skip
def _broadcast(p: Propagation, node: Any, *operands: Any, **options: Any) -> Labels:
    tensors = [operand for operand in operands if isinstance(operand, Labels)]
    shape = _out_shape(node)
    dims: list[Dim | None] = [None] * len(shape)
    for d, size in enumerate(shape):
        aligned = [(t.shape[d - len(shape)], t.dims[d - len(shape)]) for t in tensors if len(t.shape) >= len(shape) - d]
        entries = [dim for extent, dim in aligned if extent == size]
        dims[d] = p.join(entries, "meets channels that are held at full width or have no label") if size > 1 else None
        if size == 1:
            dims[d] = next((dim for dim in entries if dim is not None), None)
    return Labels(shape, tuple(dims))


@rule("prelu")
def _prelu(p: Propagation, node: Any, x: Labels, weight: Labels) -> Labels:
    if weight.shape[0] > 1:
        p.unify(x.dims[1], weight.dims[0], "activates channels that are held at full width")
    return x


@rule("glu")
def _glu(p: Propagation, node: Any, x: Labels, dim: int = -1) -> Labels:
    parts = _equal_parts(p, x, 2, dim % len(x.shape))
    return Labels(_out_shape(node), parts[0].dims)


# ---------------------------------------------------------------- space


@rule(
    "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "max_pool2d_with_indices", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d",
    "upsample_bicubic2d", "upsample_linear1d", "upsample_trilinear3d", "upsample_nearest_exact2d",
    "_upsample_nearest_exact2d", "upsample", "interpolate", "lp_pool2d", "fractional_max_pool2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "reflection_pad2d", "replication_pad2d",
)  # fmt: skip
def _spatial(p: Propagation, node: Any, x: Labels, *rest: Any, **options: Any) -> Any:
    value = node.meta["val"]
    if isinstance(value, (tuple, list)):
        return tuple(Labels(tuple(v.shape), x.dims) for v in value)
    return Labels(tuple(value.shape), x.dims)


@rule("pad", "constant_pad_nd")
def _pad(p: Propagation, node: Any, x: Labels, amounts: Sequence[int], *rest: Any) -> Labels:
    dims = list(x.dims)
    for i in range(len(amounts) // 2):
        d = len(dims) - 1 - i
        before, after = amounts[2 * i], amounts[2 * i + 1]
        dim = dims[d]
        if dim is None or not (before or after):
            continue
        reason = p.reason("channels of zeros added by padding")
        if before < 0 or after < 0:
            p.fix(dim, reason)
            dims[d] = p.symbols.fresh(_out_shape(node)[d], reason)
        else:
            dims[d] = (
                *(p.symbols.fresh(before, reason) if before else ()),
                *dim,
                *(p.symbols.fresh(after, reason) if after else ()),
            )
    return Labels(_out_shape(node), tuple(dims))


@rule("mean", "sum", "amax", "amin", "max", "min", "std", "var", "norm", "linalg_vector_norm", "var_mean", "std_mean")
def _reduce(p: Propagation, node: Any, x: Labels, *rest: Any, **options: Any) -> Any:
    value = node.meta["val"]
    named = options.get(
        "dim", next((r for r in rest if isinstance(r, (int, list, tuple)) and not isinstance(r, bool)), None)
    )
    if str(node.target).startswith(("aten.norm", "aten.linalg_vector_norm")):
        named = options.get("dim", rest[1] if len(rest) > 1 else None)
    if str(node.target) == "aten.max.other" or any(isinstance(r, Labels) for r in rest):
        return _broadcast(p, node, x, *rest)
    axes = range(len(x.shape)) if named is None else [named] if isinstance(named, int) else named
    reduced = {axis % len(x.shape) for axis in axes}
    first = value[0] if isinstance(value, (tuple, list)) else value
    keep = len(first.shape) == len(x.shape)
    dims = tuple(None if d in reduced else dim for d, dim in enumerate(x.dims) if keep or d not in reduced)
    if isinstance(value, (tuple, list)):
        return tuple(Labels(tuple(v.shape), dims) for v in value)
    return Labels(tuple(value.shape), dims)


# ---------------------------------------------------------------- shape


@rule("flatten", "view", "reshape", "_unsafe_view", "unflatten")
def _reshape(p: Propagation, node: Any, x: Labels, *rest: Any) -> Labels:
    shape = _out_shape(node)
    dims: list[Dim | None] = []
    for old, new in _matching_blocks(x.shape, shape):
        dims += _reshape_block(p, x, old, [shape[d] for d in new])
    return Labels(shape, tuple(dims))


def _matching_blocks(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The finest blocks of neighbouring dimensions with equal products in both shapes."""
    blocks: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = [], []
        a = b = 1
        if i < len(old):
            left, a, i = [i], old[i], i + 1
        if j < len(new):
            right, b, j = [j], new[j], j + 1
        while a != b:
            if a < b:
                left.append(i)
                a, i = a * old[i], i + 1
            else:
                right.append(j)
                b, j = b * new[j], j + 1
        blocks.append((left, right))
    return blocks


def _reshape_block(p: Propagation, x: Labels, old: list[int], sizes: list[int]) -> list[Dim | None]:
    labelled = [d for d in old if x.dims[d] is not None and x.shape[d] > 1]
    if not labelled:
        return [None] * len(sizes)
    dim = _merged(p, x, [d for d in old if x.shape[d] > 1], labelled)
    wide = [k for k, size in enumerate(sizes) if size > 1]
    if len(wide) <= 1:
        return [dim if k in wide else None for k in range(len(sizes))]
    parts = _divided(p, dim, [sizes[k] for k in wide])
    return [parts[wide.index(k)] if k in wide else None for k in range(len(sizes))]


def _merged(p: Propagation, x: Labels, old: list[int], labelled: list[int]) -> Dim:
    """Several dimensions made one: `repeat` grows by what lies behind the channels, copies by what lies before."""
    channel = labelled[0]
    dim = x.dims[channel]
    assert dim is not None
    before = math.prod(x.shape[d] for d in old if d < channel)
    behind = math.prod(x.shape[d] for d in old if d > channel)
    if len(labelled) > 1 or before * len(p.symbols.resolve(dim)) > MAX_PIECES:
        reason = p.reason("dimensions merged in a way that leaves no runs of channels")
        for d in labelled:
            p.fix(x.dims[d], reason)
        return p.symbols.fresh(math.prod(x.shape[d] for d in old), reason)
    return tuple(piece._replace(repeat=piece.repeat * behind) for piece in p.symbols.resolve(dim)) * before


def _divided(p: Propagation, dim: Dim, sizes: list[int]) -> list[Dim | None]:
    """One dimension made several: the channels go to the first where atoms stay whole, else to the last, in equal parts."""
    behind = math.prod(sizes[1:])
    pieces = p.symbols.resolve(dim)
    if all(piece.repeat % behind == 0 for piece in pieces):
        head: Dim = tuple(Piece(v, atoms, repeat // behind) for v, atoms, repeat in pieces)
        return [head] + [None] * (len(sizes) - 1)
    if len(sizes) > 2:
        reason = p.reason("channels divided over more than two dimensions")
        p.fix(dim, reason)
        return [None] * len(sizes)
    reason = p.reason("channels divided into parts that do not correspond")
    parts = p.symbols.split(dim, [sizes[1]] * sizes[0], reason)
    for part in parts[1:]:
        p.symbols.unify(parts[0], part, reason)
    return [None, p.symbols.resolve(parts[0])]


@rule("permute")
def _permute(p: Propagation, node: Any, x: Labels, order: Sequence[int]) -> Labels:
    return Labels(_out_shape(node), tuple(x.dims[d] for d in order))


@rule("transpose", "swapaxes", "transpose_")
def _transpose(p: Propagation, node: Any, x: Labels, a: int, b: int) -> Labels:
    dims = list(x.dims)
    dims[a], dims[b] = dims[b], dims[a]
    return Labels(_out_shape(node), tuple(dims))


@rule("t")
def _t(p: Propagation, node: Any, x: Labels) -> Labels:
    return Labels(_out_shape(node), x.dims[::-1])


@rule("unsqueeze", "unsqueeze_")
def _unsqueeze(p: Propagation, node: Any, x: Labels, dim: int) -> Labels:
    dims = list(x.dims)
    dims.insert(dim % (len(dims) + 1), None)
    return Labels(_out_shape(node), tuple(dims))


@rule("squeeze", "squeeze_")
def _squeeze(p: Propagation, node: Any, x: Labels, dim: int | Sequence[int] | None = None) -> Labels:
    axes = range(len(x.shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {d % len(x.shape) for d in axes if x.shape[d] == 1}
    return Labels(_out_shape(node), tuple(label for d, label in enumerate(x.dims) if d not in gone))


@rule("expand", "expand_as", "broadcast_to")
def _expand(p: Propagation, node: Any, x: Labels, *rest: Any, **options: Any) -> Labels:
    shape = _out_shape(node)
    if rest and isinstance(rest[0], Labels):
        return _broadcast(p, node, x, rest[0])
    new = len(shape) - len(x.shape)
    return Labels(
        shape, tuple(None if d < new or x.shape[d - new] != shape[d] else x.dims[d - new] for d in range(len(shape)))
    )


@rule("select")
def _select(p: Propagation, node: Any, x: Labels, dim: int, index: int) -> Labels:
    axis = dim % len(x.shape)
    p.fix(x.dims[axis], p.reason("one channel is picked by its number"))
    return Labels(_out_shape(node), x.dims[:axis] + x.dims[axis + 1 :])


@rule("slice")
def _slice(
    p: Propagation, node: Any, x: Labels, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Labels:
    axis, shape = dim % len(x.shape), _out_shape(node)
    channels = x.dims[axis]
    if channels is None or shape == x.shape:
        return Labels(shape, x.dims)
    reason = p.reason("channels picked by number: the model's code may count on exactly these")
    p.fix(channels, reason)
    return Labels(shape, x.dims).replace(**{f"d{axis}": p.symbols.fresh(shape[axis], reason)})


@rule("cat", "concat", "concatenate")
def _cat(p: Propagation, node: Any, tensors: Sequence[Labels], dim: int = 0) -> Labels:
    axis, shape = dim % len(tensors[0].shape), _out_shape(node)
    dims: list[Dim | None] = [
        p.join([t.dims[d] for t in tensors], "joined with channels that are held at full width")
        for d in range(len(shape))
    ]
    dims[axis] = None
    if any(t.dims[axis] is not None for t in tensors):
        reason = p.reason("joined channels without a label")
        dims[axis] = tuple(piece for t in tensors for piece in t.dims[axis] or p.symbols.fresh(t.shape[axis], reason))
    return Labels(shape, tuple(dims))


@rule("chunk")
def _chunk(p: Propagation, node: Any, x: Labels, chunks: int, dim: int = 0) -> tuple[Labels, ...]:
    axis = dim % len(x.shape)
    if x.dims[axis] is None:
        return tuple(Labels(tuple(v.shape), x.dims) for v in node.meta["val"])
    return _equal_parts(p, x, chunks, axis)


def _equal_parts(p: Propagation, x: Labels, chunks: int, axis: int) -> tuple[Labels, ...]:
    """A dimension halved by the model's own code: the parts keep the same channels, so that they stay equal."""
    dim = x.dims[axis]
    size, ragged = divmod(x.shape[axis], chunks)
    part_shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    if dim is None:
        return (Labels(part_shape, x.dims),) * chunks
    reason = p.reason("channels divided into parts that do not correspond")
    if ragged:
        p.fix(dim, reason)
    parts = p.symbols.split(dim, [size] * chunks, reason) if not ragged else []
    for part in parts[1:]:
        p.symbols.unify(parts[0], part, reason)
    if ragged:
        size = -(-x.shape[axis] // chunks)
        sizes = [min(size, x.shape[axis] - k * size) for k in range(chunks) if k * size < x.shape[axis]]
        parts = [p.symbols.fresh(s, reason) for s in sizes]
    return tuple(
        Labels((*x.shape[:axis], sum(q.size for q in part), *x.shape[axis + 1 :]), x.dims).replace(**{f"d{axis}": part})
        for part in parts
    )


@rule("split", "split_with_sizes")
def _split(p: Propagation, node: Any, x: Labels, sizes: Any, dim: int = 0) -> tuple[Labels, ...]:
    axis = dim % len(x.shape)
    results = [tuple(v.shape) for v in node.meta["val"]]
    channels = x.dims[axis]
    if channels is None:
        return tuple(Labels(shape, x.dims) for shape in results)
    reason = p.reason("channels split at numbers that the model's code holds")
    p.fix(channels, reason)
    return tuple(Labels(s, x.dims).replace(**{f"d{axis}": p.symbols.fresh(s[axis], reason)}) for s in results)


@rule("pixel_shuffle")
def _pixel_shuffle(p: Propagation, node: Any, x: Labels, factor: int) -> Labels:
    shape, axis = _out_shape(node), len(x.shape) - 3
    out = p.symbols.fresh(shape[axis])
    p.unify(x.dims[axis], (out[0]._replace(repeat=factor**2),), "pixels shuffled out of fixed channels")
    return Labels(shape, x.dims).replace(**{f"d{axis}": out})


@rule("pixel_unshuffle")
def _pixel_unshuffle(p: Propagation, node: Any, x: Labels, factor: int) -> Labels:
    axis = len(x.shape) - 3
    dim = x.dims[axis]
    grown = None if dim is None else tuple(q._replace(repeat=q.repeat * factor**2) for q in p.symbols.resolve(dim))
    return Labels(_out_shape(node), x.dims).replace(**{f"d{axis}": grown})


@rule("channel_shuffle")
def _channel_shuffle(p: Propagation, node: Any, x: Labels, groups: int) -> Labels:
    dim = x.dims[1]
    if dim is None:
        return x
    part = _divided(p, dim, [groups, x.shape[1] // groups])[1]
    shuffled = tuple(q._replace(repeat=q.repeat * groups) for q in part) if part else None
    return x.replace(d1=shuffled)


@rule("getitem")
def _getitem(p: Propagation, node: Any, items: Sequence[Any], index: int) -> Any:
    return items[index]


def unknown(p: Propagation, node: Any, arguments: Sequence[Any]) -> Any:
    """What happens at an operator without a rule: everything it touches is held at full width."""
    reason = Reason(f"no rule for operator {node.target}", str(node.target), p.where(node))
    for labels in arguments:
        for dim in labels.dims:
            p.fix(dim, reason)
    return _unlabelled(node.meta.get("val"))


def _unlabelled(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_unlabelled(v) for v in value)
    return Labels(tuple(value.shape), (None,) * len(value.shape)) if hasattr(value, "shape") else value
