"""Rules for layers with weights: convolutions, linear layers, normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bcnet.space.labels import Labels, Propagation
from bcnet.space.rules.table import out_shape, rule
from bcnet.space.symbols import Dim


@rule("conv1d", "conv2d", "conv3d")
def _conv(
    p: Propagation, node: Any, x: Labels, weight: Labels, bias: Labels | None = None,
    stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Labels:  # fmt: skip
    channel = len(x.shape) - len(weight.shape) + 1
    if weight.dims[0] is None and groups == weight.shape[0] == x.shape[channel]:
        # one filter, expanded to the number of channels (anti-aliasing): any number works
        weight = Labels(weight.shape, (x.dims[channel], *weight.dims[1:]))
    out = _group_convolution(p, x, channel, weight, 0, 1, groups) if groups > 1 else dense(p, x, channel, weight, 0, 1)
    p.count_macs(_along_channels(p, node, x, channel), weight, out)
    return _finish_conv(p, node, x, channel, out, weight, bias)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(
    p: Propagation, node: Any, x: Labels, weight: Labels, bias: Labels | None = None,
    stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Labels:  # fmt: skip
    channel = len(x.shape) - len(weight.shape) + 1
    if groups > 1:
        out = _group_convolution(p, x, channel, weight, 0, 0, groups, out_size=weight.shape[1] * groups)
        p.fix(weight.dims[1], p.silent)
    else:
        out = dense(p, x, channel, weight, 1, 0)
    for d in range(channel + 1, len(x.shape)):
        p.fix(x.dims[d], p.reason("a transposed convolution runs along channels"))
    p.count_macs(x.drop_axis(channel), weight, out)
    return _finish_conv(p, node, x, channel, out, weight, bias)


def dense(p: Propagation, x: Labels, channel: int, weight: Labels, out_dim: int, in_dim: int) -> Dim:
    """Tie the weight's inputs to the channels of `x`, and record its outputs as new channels."""
    p.unify(weight.dims[in_dim], x.dims[channel], "reads channels that are pinned at full width")
    out = weight.dims[out_dim]
    if out is None:
        out = p.symbols.new_dim(
            weight.shape[out_dim], p.reason("a weight computed in a way that the trace cannot follow")
        )
    p.record_produced(out, weight)
    return out


def _group_convolution(
    p: Propagation, x: Labels, channel: int, weight: Labels, held: int, within: int, groups: int, out_size: int = 0
) -> Dim:
    """Apply a group convolution that keeps whole groups: inputs, weight and outputs of a group stay or go together.

    If the code also splits the channels into the same groups (a shuffle, split attention), tracing repeats with the
    weights in `p.within` narrowed within their groups, equally in each.
    """
    if p.name_of(weight) in p.within:
        return _within_groups(p, x, channel, weight, groups)
    shared = p.symbols.new_dim(groups)[0]
    out_size = out_size or weight.shape[held]
    text = "the channels of a convolution group cannot be told apart here"
    p.unify(x.dims[channel], (shared._replace(repeat=x.shape[channel] // groups),), text)
    p.unify(weight.dims[held], (shared._replace(repeat=weight.shape[held] // groups),), text)
    if within != held:
        p.fix(weight.dims[within], p.silent)
    out = (shared._replace(repeat=out_size // groups),)
    p.record_produced(out, weight)
    if within != held and weight.shape[within] > 1:
        p.grouped.append((p.name_of(weight), out))
    return out


def _within_groups(p: Propagation, x: Labels, channel: int, weight: Labels, groups: int) -> Dim:
    """Tie the same channels of every group, in inputs and outputs."""
    text = "channels of convolution groups that cannot be narrowed alike"
    inner = weight.dims[1]
    held = weight.dims[0]
    if inner is None or held is None:
        p.fix(x.dims[channel], p.reason(text))
        return p.symbols.new_dim(weight.shape[0], p.reason(text))
    p.unify(x.dims[channel], inner * groups, text)
    first, *others = p.symbols.split(held, [weight.shape[0] // groups] * groups, p.reason(text))
    for other in others:
        p.symbols.unify(first, other, p.reason(text))
    out = p.symbols.resolve(first) * groups
    p.record_produced(out, weight)
    return out


def _along_channels(p: Propagation, node: Any, x: Labels, channel: int) -> Labels:
    """Return the positions of a convolution's results; along channels (an ECA gate) their number must not change."""
    shape = out_shape(node)
    for d in range(channel + 1, len(shape)):
        if shape[d] != x.shape[d]:
            p.fix(x.dims[d], p.reason("a convolution along channels changes their number"))
    kept = (x.dims[d] if shape[d] == x.shape[d] else None for d in range(len(shape)))
    return Labels(shape, tuple(kept)).drop_axis(channel)


def _finish_conv(
    p: Propagation, node: Any, x: Labels, channel: int, out: Dim, weight: Labels, bias: Labels | None
) -> Labels:
    if bias is not None:
        p.unify(bias.dims[0], out, "bias")
    for kernel in weight.dims[2:]:
        p.fix(kernel, p.silent)
    shape = out_shape(node)
    dims = [x.dims[d] if shape[d] == x.shape[d] else None for d in range(len(shape))]
    dims[channel] = out
    return Labels(shape, tuple(dims))


@rule("_weight_norm", "_weight_norm_interface")
def _weight_norm(p: Propagation, node: Any, direction: Labels, length: Labels, dim: int = 0) -> Any:
    """Give the weight `g v / |v|`, with one length per index of a dimension, the labels of `v`."""
    for d, size in enumerate(length.shape):
        if size > 1:
            p.unify(direction.dims[d], length.dims[d], "is normalised with what is pinned at full width")
    weight = p.stands_for(Labels(direction.shape, direction.dims), direction)
    return (weight, length) if isinstance(node.meta["val"], (tuple, list)) else weight


@rule("fused_moving_avg_obs_fake_quant", "_fused_moving_avg_obs_fq_helper")
def _fake_quantise(p: Propagation, node: Any, x: Labels, *rest: Any) -> Any:
    """Handle fake quantisation with range observers; `rest[2:6]` are tables of min, max, scale and zero point."""
    minimum, maximum, scale, zero = rest[2:6]
    axis = rest[9]
    per_channel = rest[10] if len(rest) > 10 else False
    quantised = _quantise(p, x, (minimum, maximum, scale, zero), axis if per_channel else None)
    return (quantised, quantised) if isinstance(node.meta["val"], (tuple, list)) else quantised


@rule("fake_quantize_per_channel_affine", "_fake_quantize_learnable_per_channel_affine")
def _quantised_by_channel(
    p: Propagation, node: Any, x: Labels, scale: Labels, zero: Labels, axis: int, *rest: Any
) -> Labels:
    return _quantise(p, x, (scale, zero), axis)


def _quantise(p: Propagation, x: Labels, tables: Sequence[Labels], axis: int | None) -> Labels:
    """Return the labels of a quantised tensor, whose table has one entry per index of a dimension."""
    for table in tables:
        if axis is not None and table.shape and table.shape[0] == x.shape[axis] > 1:
            p.unify(x.dims[axis], table.dims[0], "is quantised by what is pinned at full width")
    return p.stands_for(Labels(x.shape, x.dims), x) if p.name_of(x) else x


@rule("linear")
def _linear(p: Propagation, node: Any, x: Labels, weight: Labels, bias: Labels | None = None) -> Labels:
    out = dense(p, x, len(x.shape) - 1, weight, 0, 1)
    if bias is not None:
        p.unify(bias.dims[0], out, "bias")
    p.count_macs(x.drop_axis(len(x.shape) - 1), weight, out)
    return Labels(out_shape(node), (*x.dims[:-1], out))


@rule("bilinear")
def _bilinear(p: Propagation, node: Any, x: Labels, y: Labels, weight: Labels, bias: Labels | None = None) -> Labels:
    last = len(x.shape) - 1
    p.unify(weight.dims[1], x.dims[last], "reads channels that are pinned at full width")
    out = dense(p, y, last, weight, 0, 2)
    if bias is not None:
        p.unify(bias.dims[0], out, "bias")
    p.count_macs(x.drop_axis(last), weight, out)
    return Labels(out_shape(node), (*x.dims[:-1], out))


@rule("embedding")
def _embed(p: Propagation, node: Any, weight: Labels, numbers: Labels, *rest: Any) -> Labels:
    """Return the labels of an embedding: one row per index, whose features are channels."""
    features = weight.dims[1]
    assert features is not None
    p.fix(weight.dims[0], p.reason("rows that are looked up by their number"))
    p.record_produced(features, weight)
    return Labels(out_shape(node), (*numbers.dims, features))


@rule("batch_norm", "instance_norm")
def _channel_norm(
    p: Propagation, node: Any, x: Labels, weight: Labels | None, bias: Labels | None,
    mean: Labels | None, variance: Labels | None, *rest: Any,
) -> Labels:  # fmt: skip
    parts = [part for part in (weight, bias, mean, variance) if part is not None]
    for part in parts:
        p.unify(x.dims[1], part.dims[0], "normalises channels that are pinned at full width")
    if not parts and x.dims[1] is not None:
        p.count_channels(x.dims[1], "num_features")
    return x


@rule("group_norm")
def _group_norm(
    p: Propagation, node: Any, x: Labels, groups: int, weight: Labels | None = None, bias: Labels | None = None,
    *rest: Any,
) -> Labels:  # fmt: skip
    if groups > 1:
        whole = (p.symbols.new_dim(groups)[0]._replace(repeat=x.shape[1] // groups),)
        p.unify(x.dims[1], whole, "the channels of a normalisation group cannot be told apart here")
        if weight is None:
            p.fix(
                x.dims[1],
                p.reason("a group norm without parameters does not adapt to narrower inputs", "give it affine=True"),
            )
    for part in (weight, bias):
        if part is not None:
            p.unify(x.dims[1], part.dims[0], "normalises channels that are pinned at full width")
    return x


@rule("layer_norm", "rms_norm")
def _layer_norm(
    p: Propagation, node: Any, x: Labels, shape: Sequence[int], weight: Labels | None = None, bias: Any = None,
    *rest: Any,
) -> Labels:  # fmt: skip
    first = len(x.shape) - len(shape)
    for d in range(first, len(x.shape)):
        dim = x.dims[d]
        if weight is None and dim is not None:
            p.count_channels(dim, f"normalized_shape.{d - first}")
        for part in (weight, bias):
            if isinstance(part, Labels):
                p.unify(dim, part.dims[d - first], "normalises channels that are pinned at full width")
    return x
