"""Rules for elementwise operators, operators over space, and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bcnet.space.labels import Labels, Propagation
from bcnet.space.rules.table import axes_of, operator_of, out_shape, rule
from bcnet.space.symbols import Dim


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
    "uniform_", "exponential_", "tan", "atan", "isnan", "isfinite", "trunc", "frac", "log2", "exp2", "logit", "sgn",
    "tril", "triu", "rrelu", "rrelu_with_noise", "conj", "resolve_conj", "_conj", "conj_physical", "_conj_physical",
    "real", "imag", "angle", "resolve_neg", "positive", "fake_quantize_per_tensor_affine", "absolute", "negative",
    "fix", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "bucketize",
)  # fmt: skip
def _keep_labels(p: Propagation, node: Any, x: Labels, *rest: Any, **options: Any) -> Labels:
    return x


@rule("_assert_tensor_metadata")
def _assert_metadata(p: Propagation, node: Any, x: Labels, *rest: Any, **options: Any) -> None:
    """Ignore the check that torch.export adds to every dtype conversion: it reads no channels and returns nothing."""


@rule(
    "add", "add_", "sub", "sub_", "rsub", "mul", "mul_", "div", "div_", "true_divide", "maximum", "minimum", "pow",
    "pow_", "where", "lerp", "addcmul", "addcdiv", "eq", "ne", "gt", "ge", "lt", "le", "logical_and", "logical_or",
    "bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__", "masked_fill", "masked_fill_", "atan2",
    "fmod", "remainder", "copy_", "expand_as", "hypot", "floor_divide", "logaddexp", "xlogy", "logical_xor",
    "clamp_max_", "float_power", "heaviside", "complex", "polar", "subtract", "multiply", "divide", "greater",
    "greater_equal", "less", "less_equal", "not_equal", "arctan2", "subtract_", "multiply_", "divide_",
)  # fmt: skip
def broadcast(p: Propagation, node: Any, *operands: Any, **options: Any) -> Labels:
    """Tie the dimensions that meet in an operator that broadcasts its operands."""
    return _tie_aligned(p, [operand for operand in operands if isinstance(operand, Labels)], out_shape(node))


def _tie_aligned(p: Propagation, tensors: Sequence[Labels], shape: tuple[int, ...]) -> Labels:
    dims: list[Dim | None] = [None] * len(shape)
    for d, size in enumerate(shape):
        aligned = [(t.shape[d - len(shape)], t.dims[d - len(shape)]) for t in tensors if len(t.shape) >= len(shape) - d]
        # An operand of size 1 is expanded and restricts nothing.
        entries = [dim for extent, dim in aligned if extent == size]
        dims[d] = p.join(entries, "meets channels that are pinned at full width or have no label") if size > 1 else None
        if size == 1:
            dims[d] = next((dim for dim in entries if dim is not None), None)
    return Labels(shape, tuple(dims))


@rule("broadcast_tensors")
def _broadcast_all(p: Propagation, node: Any, tensors: Sequence[Labels]) -> tuple[Labels, ...]:
    return (_tie_aligned(p, tensors, tuple(node.meta["val"][0].shape)),) * len(tensors)


@rule("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "dist", "pairwise_distance")
def _difference(p: Propagation, node: Any, x: Labels, y: Labels, *rest: Any, **options: Any) -> Labels:
    """Handle a loss or distance of two tensors, which may be their mean, or a sum over the last dimension."""
    shape = out_shape(node)
    for d in range(1, min(len(x.shape), len(y.shape)) + 1):
        if x.shape[-d] == y.shape[-d] > 1:
            p.unify(x.dims[-d], y.dims[-d], "is compared with channels that are pinned at full width")
    wider = x if len(x.shape) >= len(y.shape) else y
    kept = wider.dims[: len(shape)]
    return Labels(shape, tuple(dim if size > 1 else None for dim, size in zip(kept, shape, strict=True)))


@rule("prelu")
def _prelu(p: Propagation, node: Any, x: Labels, weight: Labels) -> Labels:
    if weight.shape[0] > 1:
        p.unify(x.dims[1], weight.dims[0], "activates channels that are pinned at full width")
    return x


@rule(
    "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices", "fractional_max_pool3d",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d", "upsample_bicubic2d",
    "upsample_linear1d", "upsample_trilinear3d", "upsample_nearest_exact2d", "_upsample_nearest_exact2d", "upsample",
    "interpolate", "lp_pool2d", "fractional_max_pool2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
    "replication_pad3d",
)  # fmt: skip
def _spatial(p: Propagation, node: Any, x: Labels, *rest: Any, **options: Any) -> Any:
    value = node.meta["val"]
    if isinstance(value, (tuple, list)):
        return tuple(_resize(p, x, tuple(v.shape)) for v in value)
    return _resize(p, x, tuple(value.shape))


def _resize(p: Propagation, x: Labels, shape: tuple[int, ...]) -> Labels:
    """Return the labels at another size; channels along which values were pooled or resized are no longer separate."""
    dims = list(x.dims)
    for d, (before, after) in enumerate(zip(x.shape, shape, strict=True)):
        if before != after:
            inner = _without_padding(p, dims[d])
            if inner is not None and sum(piece.size for piece in inner) == after > 1:
                dims[d] = inner  # pooling along channels, padded to keep their number
                continue
            if after > 1:
                p.fix(dims[d], p.reason("channels along which is pooled or resized"))
            dims[d] = None
    return Labels(shape, tuple(dims))


def _without_padding(p: Propagation, dim: Dim | None) -> Dim | None:
    if dim is None:
        return None
    return tuple(piece for piece in dim if piece.variable not in p.padding)


@rule("pad", "constant_pad_nd")
def _pad(p: Propagation, node: Any, x: Labels, amounts: Sequence[int], *rest: Any) -> Labels:
    dims = list(x.dims)
    # torch lists amounts from the last dimension backwards.
    for i in range(len(amounts) // 2):
        d = len(dims) - 1 - i
        before = amounts[2 * i]
        after = amounts[2 * i + 1]
        dim = dims[d]
        if dim is None or not (before or after):
            continue
        reason = p.reason("channels of zeros added by padding")
        if before < 0 or after < 0:
            p.fix(dim, reason)
            dims[d] = p.symbols.new_dim(out_shape(node)[d], reason)
        else:
            zeros = [p.symbols.new_dim(count, reason) if count else () for count in (before, after)]
            p.padding.update(piece.variable for added in zeros for piece in added)
            dims[d] = (*zeros[0], *dim, *zeros[1])
    return Labels(out_shape(node), tuple(dims))


@rule(
    "mean",
    "sum",
    "amax",
    "amin",
    "max",
    "min",
    "std",
    "var",
    "norm",
    "linalg_vector_norm",
    "var_mean",
    "std_mean",
    "logsumexp",
    "prod",
    "argmax",
    "argmin",
    "any",
    "all",
    "nansum",
    "nanmean",
    "count_nonzero",
    "median",
    "nanmedian",
    "aminmax",
    "mode",
    "kthvalue",
)
def _reduce(p: Propagation, node: Any, x: Labels, *rest: Any, **options: Any) -> Any:
    value = node.meta["val"]
    named = options.get(
        "dim", next((r for r in rest if isinstance(r, (int, list, tuple)) and not isinstance(r, bool)), None)
    )
    last = -1 if operator_of(node) in ("kthvalue", "mode") else None  # the dimension where none is named
    named = last if named is None else named
    if operator_of(node) in ("norm", "linalg_vector_norm", "kthvalue"):
        named = options.get("dim", rest[1] if len(rest) > 1 else last)
    if str(node.target) == "aten.max.other" or any(isinstance(r, Labels) for r in rest):
        return broadcast(p, node, x, *rest)
    reduced = {axis % len(x.shape) for axis in axes_of(x, named)}
    # `max` and `min` along a dimension return values and indices, which have the same channels.
    first = value[0] if isinstance(value, (tuple, list)) else value
    keep = len(first.shape) == len(x.shape)
    dims = tuple(None if d in reduced else dim for d, dim in enumerate(x.dims) if keep or d not in reduced)
    if isinstance(value, (tuple, list)):
        return tuple(Labels(tuple(v.shape), dims) for v in value)
    return Labels(tuple(value.shape), dims)


@rule("quantile", "nanquantile")
def _quantile(
    p: Propagation, node: Any, x: Labels, shares: Any, dim: int | None = None, keepdim: bool = False, **options: Any
) -> Labels:
    """Handle one quantile along a dimension, or several, which come first."""
    reduced = {axis % len(x.shape) for axis in axes_of(x, dim)}
    kept = [None if d in reduced else label for d, label in enumerate(x.dims) if keepdim or d not in reduced]
    several = isinstance(shares, Labels) and len(shares.shape) == 1
    return Labels(out_shape(node), (None, *kept) if several else tuple(kept))
