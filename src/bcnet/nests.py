"""The content of a batch: one tensor, or several in a tuple or a dict, each with the batch as its first dimension.

As inputs of a network a tuple are its arguments, in order, and a dict its keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

Nest = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
Some = TypeVar("Some", bound=Nest)
Leaf = TypeVar("Leaf")


def by_name(nest: Leaf | tuple[Leaf, ...] | dict[str, Leaf]) -> dict[str, Leaf]:
    """The tensors, or what is said of each, by name: "" of one alone, "[0]", "[1]" in a tuple, ".key" in a dict."""
    if isinstance(nest, tuple):
        return {f"[{number}]": leaf for number, leaf in enumerate(nest)}
    if isinstance(nest, dict):
        return {f".{key}": leaf for key, leaf in nest.items()}
    return {"": nest}


def tensors(nest: Nest) -> list[Tensor]:
    """The tensors, in order."""
    return list(by_name(nest).values())


def like(nest: Nest, found: Sequence[Any]) -> Any:
    """`found`, one for each tensor of `nest`, in the form of `nest`."""
    if isinstance(nest, Tensor):
        return found[0]
    return tuple(found) if isinstance(nest, tuple) else dict(zip(nest, found, strict=True))


def from_named(parts: Mapping[str, Any]) -> Any:
    """Return what `by_name` took apart."""
    if "" in parts:
        return parts[""]
    if parts and all(name.startswith("[") for name in parts):
        return tuple(parts[f"[{number}]"] for number in range(len(parts)))
    return {name.removeprefix("."): part for name, part in parts.items()}


def map_tensors(function: Callable[[Tensor], Tensor], nest: Some) -> Some:
    """The nest with every tensor replaced."""
    replaced: Some = like(nest, [function(tensor) for tensor in tensors(nest)])
    return replaced


def count(nest: Nest) -> int:
    """The size of the batch."""
    return len(tensors(nest)[0])


def nth_part(count: int, number: int, parts: int) -> slice:
    """Part `number` of `count` things in order, cut into `parts`: neighbours, the first ones having one more if uneven.

    Example: 7 things in 3 parts are 0..2, 3..4 and 5..6; 2 in 3 are 0, 1 and none.
    """
    each, more = divmod(count, parts)
    start = number * each + min(number, more)
    return slice(start, start + each + (number < more))


def take_images(nest: Some, index: Tensor | slice | int) -> Some:
    """Some images of the batch."""
    return map_tensors(lambda tensor: tensor[index], nest)


def join_batches(nests: Sequence[Some]) -> Some:
    """Batches of one form, one after the other."""
    parts = [tensors(nest) for nest in nests]
    whole: Some = like(nests[0], [torch.cat(column) for column in zip(*parts, strict=True)])
    return whole


def upper_bound(tensor: Tensor) -> int:
    """Return what all integers of a tensor are below; 1 for floats."""
    return 1 if tensor.is_floating_point() else max(1, int(tensor.max()) + 1)


def channels_last(nest: Some) -> Some:
    """The nest with its images in the memory format that convolutions like."""
    return map_tensors(lambda t: t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t, nest)


def contiguous(nest: Some) -> Some:
    """The nest with every tensor in row-major memory; sparse ones, which have no order, stay."""
    # `t.contiguous()` keeps the channels-last strides of images with one channel, and a convolution follows them.
    return map_tensors(
        lambda t: t.clone(memory_format=torch.contiguous_format) if t.layout == torch.strided else t, nest
    )


def as_float(nest: Some, network: nn.Module) -> Some:
    """The nest on the device of a network, with its floats in the precision of the network's."""
    floats = next((p for p in network.parameters() if p.is_floating_point()), torch.empty(0))
    return map_tensors(lambda t: t.to(floats) if t.is_floating_point() else t.to(floats.device), nest)


def call_network(network: Callable[..., Any], inputs: Any) -> Any:
    """Return what a network gives for `inputs`: a tuple are its arguments, a dict its keyword arguments."""
    if isinstance(inputs, tuple):
        return network(*inputs)
    return network(**inputs) if isinstance(inputs, dict) else network(inputs)


def arguments(inputs: Nest) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Positional and keyword arguments of a call with `inputs`."""
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def check_close(output: Any, expected: Any) -> None:
    """Raise AssertionError where a tensor of two outputs of one form differs by more than rounding.

    That of float64 is far below what channels that meet would change; that of single precision a hundredth of it.
    """
    for a, b in zip(tree_leaves(output), tree_leaves(expected), strict=True):
        if isinstance(b, Tensor):
            rtol, atol = (1e-6, 1e-9) if b.dtype is torch.float64 else (1e-3, 1e-4)
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol)
