"""Arguments of a network for tracing: one tensor, or any pytree of tensors with keyword arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bcnet.errors import TraceError
from bcnet.pytree import contiguous


@dataclass(frozen=True)
class Example:
    """Positional and keyword arguments of a call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @classmethod
    def of(cls, network: nn.Module, example_input: Any, example_kwargs: Mapping[str, Any] | None = None) -> Example:
        """Return the described call: a tuple holds the positional arguments, anything else is the only one.

        A dict holds keyword arguments, as `call_model` passes it, if `forward` has parameters of these names.

        A batch of one is repeated, since the export would treat it as a constant. Tensors are made contiguous, since a
        `view` may fail at some widths in other memory formats.

        Raises:
            TraceError: no tensor, or a single one without channels.
        """
        args = example_input if isinstance(example_input, tuple) else (example_input,)
        kwargs = dict(example_kwargs or {})
        named = isinstance(example_input, dict) and isinstance(network, nn.Module) and not kwargs
        if named and not unknown_arguments(network, example_input):
            args, kwargs = (), example_input
        example = cls(args, kwargs)
        tensors = example.tensors
        if not tensors or (len(tensors) == 1 and tensors[0].ndim < 2):
            got = tuple(tensors[0].shape) if tensors else type(example_input).__name__
            raise TraceError(
                f"the example input must be a tensor (batch, channels, ...), or a tuple of all arguments; got {got}"
            )
        example = example.map_tensors(lambda tensor: contiguous(tensor.detach()))
        return example.map_tensors(_repeat) if example.batch == 1 else example

    @property
    def tensors(self) -> list[Tensor]:
        """Return all tensors with dimensions, in order."""
        leaves = pytree.tree_leaves((self.args, dict(self.kwargs)))
        return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim]

    @property
    def batch(self) -> int:
        """First dimension of the first tensor."""
        return len(self.tensors[0])

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> Example:
        """Return the call with `function` applied to every tensor."""
        args, kwargs = pytree.tree_map_only(Tensor, function, (self.args, dict(self.kwargs)))
        return Example(args, kwargs)

    def run(self, network: nn.Module) -> Any:
        """Call a network."""
        return network(*self.args, **self.kwargs)

    @property
    def shapes(self) -> str:
        """Describe the shapes of all tensors for messages."""
        return " and ".join(str(tuple(tensor.shape)) for tensor in self.tensors)


def unknown_arguments(network: nn.Module, names: Iterable[str]) -> list[str]:
    """Return those of `names` that are no parameters of the network's `forward`."""
    parameters = inspect.signature(network.forward).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return []
    return [name for name in names if name not in parameters]


def _repeat(tensor: Tensor) -> Tensor:
    return torch.cat([tensor, tensor]) if tensor.ndim and len(tensor) == 1 else tensor
