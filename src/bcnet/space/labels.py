"""Labels: the channels that each tensor of the graph holds, and what rules may record about them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch

from bcnet.space.symbols import Dim, Reason, Symbols


@dataclass(frozen=True)
class Labels:
    """Shape of a tensor, and the channels of each dimension (None for batch, space and the like)."""

    shape: tuple[int, ...]
    dims: tuple[Dim | None, ...]

    def drop_axis(self, axis: int) -> Labels:
        """Return the labels without one dimension."""
        return Labels(self.shape[:axis] + self.shape[axis + 1 :], self.dims[:axis] + self.dims[axis + 1 :])

    def replace(self, **changes: Dim | None) -> Labels:
        """Return the labels with some dimensions replaced, given as `d1=...`."""
        dims = list(self.dims)
        for key, dim in changes.items():
            dims[int(key[1:])] = dim
        return Labels(self.shape, tuple(dims))


@dataclass(frozen=True)
class MacsEntry:
    """One multiply-add for every position (including the batch) and every element of the weight.

    `layer` is the module that multiplies, `out` the channels it produces, None if it has no weights for them.
    """

    layer: str
    out: Dim | None
    positions: Labels
    weight: Labels


@dataclass(frozen=True)
class LiveTensor:
    """A tensor that uses memory while the network runs; `of_input` is False if it depends on weights only."""

    labels: Labels
    of_input: bool


class Propagation:
    """Labels of every parameter and tensor of a model, collected over its graphs. Rules work on this object.

    `tensors` maps names to parameters and buffers; a tensor with several names has its labels under each.
    """

    silent = Reason("")

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        *,
        vary_outputs: bool = False,
        within: Set[str] = frozenset(),
        made_alike: bool = False,
        channels_first: bool = False,
    ) -> None:
        self.vary_outputs = vary_outputs
        self.within = within  # weights of group convolutions that are narrowed within their groups
        self.grouped: list[tuple[str, Dim]] = []  # the other group convolutions, and their outputs
        self.symbols = Symbols()
        self.births: list[tuple[Dim, str]] = []  # outputs of layers with the weight's name, in network order
        self.inputs: list[Dim] = []
        self.macs: list[MacsEntry] = []
        self.outputs: list[tuple[Labels, ...]] = []  # output tensors of every graph
        self.live: tuple[tuple[LiveTensor, ...], ...] = ()  # simultaneously live tensors (bcnet.space.liveness)
        self.node: Any = None  # current node of the graph
        self.of_input = True  # whether its value depends on the input, not on weights only
        self.counting = False
        self.numbers: list[tuple[str, Dim]] = []  # attributes of layers without tensors, and what they count
        self.has_made = False
        self.has_divided = False
        self.has_shares = False  # whether code slices at what may be shares of the channels or constants
        self.channels_first = channels_first
        self.padding: set[int] = set()  # variables of channels added by padding
        self._made: set[int] = set()  # variables of tensors made from a shape only
        self.made_alike = made_alike  # whether these get the labels of the last tensor of their shape
        self._latest: dict[tuple[int, ...], Labels] = {}
        self.used: set[int] = set()  # ids of the labels of tensors that a graph reads
        self.uncounted: dict[str, None] = {}  # operators without a rule that may multiply, with their places
        shared: dict[int, Labels] = {}
        self.tensors: dict[str, Labels] = {}
        for name, tensor in tensors.items():
            shape = tuple(tensor.shape)
            if id(tensor) not in shared:
                shared[id(tensor)] = Labels(shape, self._fresh_dims(shape))
            self.tensors[name] = shared[id(tensor)]
        self._computed: list[Labels] = []  # keeps labels alive so that ids stay unique
        self._names = {id(labels): name for name, labels in reversed(self.tensors.items())}

    def _fresh_dims(self, shape: tuple[int, ...]) -> tuple[Dim | None, ...]:
        """Return dimensions that may all hold channels, except for the kernel of a convolution's weight."""
        first = len(shape)  # of the kernel's dimensions
        if len(shape) >= 4 and shape[0] > 1:
            # The last two of a bank of kernels, (bank, out, in, k, k), are the kernel.
            first = next((d for d in range(2, len(shape)) if len(set(shape[d:])) == 1), len(shape))
        return tuple(None if d >= first else self.symbols.new_dim(size) for d, size in enumerate(shape))

    def stands_for(self, labels: Labels, tensor: Labels) -> Labels:
        """Give a weight computed from the parameter `tensor` the tensor's name in its layer."""
        name = self._names.get(id(tensor), "").replace(".parametrizations.", ".").rpartition(".original")[0]
        self._names[id(labels)] = name
        self._computed.append(labels)
        return labels

    def unify(self, left: Dim | None, right: Dim | None, why_fixed: str) -> None:
        """Tie two dimensions; a missing label pins the other one."""
        if left is not None and right is not None:
            self.symbols.unify(left, right, self.reason(why_fixed))
        else:
            self.fix(left if left is not None else right, self.reason(why_fixed))

    def join(self, dims: Sequence[Dim | None], why_fixed: str) -> Dim | None:
        """Tie all dimensions and return one of them."""
        known = [dim for dim in dims if dim is not None]
        unlabelled = len(known) < len(dims)
        # A made dimension that meets one without channels, such as time, has no channels either.
        made = all(piece.variable in self._made for dim in known for piece in dim)
        for dim in known[1:]:
            self.unify(known[0], dim, why_fixed)
        if known and unlabelled:
            self.fix(known[0], self.reason(why_fixed))
        return None if not known or (unlabelled and made) else known[0]

    def note(self, labels: Labels) -> None:
        """Remember the labels of an operator's result by its shape."""
        if all(isinstance(size, int) for size in labels.shape) and any(dim is not None for dim in labels.dims):
            self._latest[labels.shape] = labels

    def label_new(self, value: torch.Tensor) -> Labels:
        """Return labels for a tensor made from a shape only: each dimension gets the channels of what it meets first.

        If the code makes a tensor in the shape of another, both must stay equal before they meet; with `made_alike` it
        gets the labels of the last tensor of its shape.
        """
        self.has_made = True
        if self.made_alike and tuple(value.shape) in self._latest:
            return self._latest[tuple(value.shape)]
        return Labels(tuple(value.shape), tuple(self.label_made(size) if size > 1 else None for size in value.shape))

    def label_made(self, size: int) -> Dim:
        """Return a new dimension, or one expanded from one element, that gets the channels of what it meets first."""
        self.has_made = True
        dim = self.symbols.new_dim(size)
        self._made.update(piece.variable for piece in dim)
        return dim

    def fix(self, dim: Dim | None, reason: Reason) -> None:
        """Pin a dimension at full width."""
        if dim is not None:
            self.symbols.fix(dim, reason)

    def name_of(self, weight: Labels) -> str:
        """Return the name of a parameter; "" for other tensors."""
        return self._names.get(id(weight), "")

    def record_produced(self, dim: Dim, weight: Labels) -> None:
        """Record a dimension that a layer produces; these are the candidates for search variables."""
        module = self._module(self.node)
        self.births.append((dim, self.name_of(weight) or (f"{module}.weight" if module else "")))

    def count_channels(self, dim: Dim, attribute: str) -> None:
        """Record that an attribute of the current module, which has no tensors, counts these channels."""
        if module := self._module(self.node):
            self.numbers.append((f"{module}:{attribute}", dim))

    def count_macs(self, positions: Labels, weight: Labels, out: Dim | None) -> None:
        """Record a multiplication of every weight element at every position, including the batch, to produce `out`."""
        if self.counting and self.of_input:
            if not all(isinstance(size, int) for size in (*positions.shape, *weight.shape)):
                self.uncounted[f"{self.node.target}, as often as the data say ({self.source_line(self.node)})"] = None
                return
            owner = owner_of(self.name_of(weight))
            layer = owner or self._module(self.node) or str(self.node.target)
            self.macs.append(MacsEntry(layer, out, positions, weight))

    def reason(self, text: str, remedy: str = "") -> Reason:
        """Return a reason with the current operator and its source line."""
        return Reason(text, str(self.node.target), self.source_line(self.node), remedy)

    @staticmethod
    def source_line(node: Any) -> str:
        """Return module and last source line of the node's stack."""
        module = Propagation._module(node)
        lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
        files = [line for line in lines if line.startswith("File ")]
        line = files[-1].removeprefix("File ").replace('"', "").rpartition(", in ")[0] if files else ""
        return f"{module} at {line}" if module and line else module or line

    @staticmethod
    def _module(node: Any) -> str:
        """Return the innermost module of the node; "" for the network itself."""
        stack = node.meta.get("nn_module_stack") or {}
        return next((path for path, _ in reversed(list(stack.values())) if path), "")


def owner_of(tensor: str) -> str:
    """Return the module of a parameter's name, or the name itself if the network owns it directly."""
    tensor = re.sub(r"(^|\.)parametrizations\.(\w+)\..*", r"\1\2", tensor)
    return tensor.rpartition(".")[0] or tensor
