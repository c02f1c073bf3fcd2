"""Pytrees: the inputs or outputs of a batch, one tensor or several in a tuple or dict, batch dimension first.

As network inputs a tuple holds positional arguments and a dict keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

Pytree = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
Some = TypeVar("Some", bound=Pytree)
Leaf = TypeVar("Leaf")


def by_name(tree: Leaf | tuple[Leaf, ...] | dict[str, Leaf]) -> dict[str, Leaf]:
    """Return the values by name: "" for a single one, "[0]", "[1]" in a tuple, ".key" in a dict."""
    if isinstance(tree, tuple):
        return {f"[{number}]": leaf for number, leaf in enumerate(tree)}
    if isinstance(tree, dict):
        return {f".{key}": leaf for key, leaf in tree.items()}
    return {"": tree}


def tensors(tree: Pytree) -> list[Tensor]:
    """Return the tensors in order."""
    return list(by_name(tree).values())


def rebuild(tree: Pytree, found: Sequence[Any]) -> Any:
    """Return `found`, one value for each tensor of `tree`, in the structure of `tree`."""
    if isinstance(tree, Tensor):
        return found[0]
    return tuple(found) if isinstance(tree, tuple) else dict(zip(tree, found, strict=True))


def from_named(parts: Mapping[str, Any]) -> Any:
    """Return the tree that `by_name` flattened."""
    if "" in parts:
        return parts[""]
    if parts and all(name.startswith("[") for name in parts):
        return tuple(parts[f"[{number}]"] for number in range(len(parts)))
    return {name.removeprefix("."): part for name, part in parts.items()}


def map_tensors(function: Callable[[Tensor], Tensor], tree: Some) -> Some:
    """Return the tree with `function` applied to every tensor."""
    replaced: Some = rebuild(tree, [function(tensor) for tensor in tensors(tree)])
    return replaced


def count(tree: Pytree) -> int:
    """Return the batch size."""
    return len(tensors(tree)[0])


def nth_part(count: int, number: int, parts: int) -> slice:
    """Return the slice of part `number` of `count` items in `parts` consecutive parts, the longer ones first.

    Example: 7 items in 3 parts are 0..2, 3..4 and 5..6; 2 items in 3 parts are 0, 1 and an empty part.
    """
    each, more = divmod(count, parts)
    start = number * each + min(number, more)
    return slice(start, start + each + (number < more))


def slice_batch(tree: Some, index: Tensor | slice | int) -> Some:
    """Return a part of the batch."""
    return map_tensors(lambda tensor: tensor[index], tree)


def concat_batches(trees: Sequence[Some]) -> Some:
    """Concatenate batches of the same structure."""
    parts = [tensors(tree) for tree in trees]
    whole: Some = rebuild(trees[0], [torch.cat(column) for column in zip(*parts, strict=True)])
    return whole


def upper_bound(tensor: Tensor) -> int:
    """Return the exclusive upper bound of an integer tensor; 1 for floats."""
    return 1 if tensor.is_floating_point() else max(1, int(tensor.max()) + 1)


def channels_last(tree: Some) -> Some:
    """Return the tree with its images in channels-last memory format."""
    return map_tensors(lambda t: t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t, tree)


def contiguous(tree: Some) -> Some:
    """Return the tree with every tensor in row-major memory order. Sparse tensors are unchanged."""
    # `t.contiguous()` keeps channels-last strides of one-channel images, and a convolution follows strides.
    return map_tensors(
        lambda t: t.clone(memory_format=torch.contiguous_format) if t.layout == torch.strided else t, tree
    )


def as_float(tree: Some, network: nn.Module) -> Some:
    """Return the tree on the network's device, with floating-point tensors in the dtype of its parameters."""
    floats = next((p for p in network.parameters() if p.is_floating_point()), torch.empty(0))
    moved: Some = tree_map_only(Tensor, lambda t: t.to(floats) if t.is_floating_point() else t.to(floats.device), tree)
    return moved


def call_model(network: Callable[..., Any], inputs: Any) -> Any:
    """Call a network; a tuple of inputs is passed as positional, a dict as keyword arguments."""
    if isinstance(inputs, tuple):
        return network(*inputs)
    return network(**inputs) if isinstance(inputs, dict) else network(inputs)


def arguments(inputs: Pytree) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return `inputs` as positional and keyword arguments."""
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def check_close(output: Any, expected: Any) -> None:
    """Raise AssertionError if a tensor of two outputs with one structure differs by more than rounding.

    The tolerance for float64 is far below the effect of a misplaced channel; for float32 it is 1 % of that effect.
    """
    for a, b in zip(tree_leaves(output), tree_leaves(expected), strict=True):
        if isinstance(b, Tensor):
            rtol, atol = (1e-6, 1e-9) if b.dtype is torch.float64 else (1e-3, 1e-4)
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol)
