"""Propagation: channel labels carried through an exported graph, one operator rule after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from bcnet.space.rules import RULES, Labels, unknown
from bcnet.space.symbols import Dim, Reason, Symbols


@dataclass(frozen=True)
class MacsEntry:
    """A multiply-add for every position (batch included) and every element of the weight.

    `layer` is the module that multiplies, `out` the channels that it makes.
    """

    layer: str
    out: Dim
    positions: Labels
    weight: Labels


class Propagation:
    """Labels of every parameter and tensor of a model, gathered over one or more graphs of it.

    `tensors` maps names to parameters and buffers; a tensor with several names has its labels under each.
    """

    silent = Reason("")

    def __init__(self, tensors: Mapping[str, torch.Tensor], *, vary_outputs: bool = False) -> None:
        self._vary_outputs = vary_outputs
        self.symbols = Symbols()
        self.births: list[tuple[Dim, str]] = []  # what layers produce and the weight's name, in network order
        self.inputs: list[Dim] = []
        self.macs: list[MacsEntry] = []
        self.outputs: list[tuple[Labels, ...]] = []  # the output tensors of every graph
        self._node: Any = None
        self._counting = False
        shared: dict[int, Labels] = {}
        self.tensors: dict[str, Labels] = {}
        for name, tensor in tensors.items():
            shape = tuple(tensor.shape)
            if id(tensor) not in shared:
                shared[id(tensor)] = Labels(shape, self._fresh_dims(shape))
            self.tensors[name] = shared[id(tensor)]
        self._names = {id(labels): name for name, labels in reversed(self.tensors.items())}

    def _fresh_dims(self, shape: tuple[int, ...]) -> tuple[Dim | None, ...]:
        """Every dimension may hold channels, but for the kernel of a convolution's weight."""
        kernel = len(shape) >= 4 and shape[0] > 1
        return tuple(None if kernel and d >= 2 else self.symbols.fresh(size) for d, size in enumerate(shape))

    def run(self, program: ExportedProgram, *, count_macs: bool) -> None:
        """Carry labels through one exported graph, tying what it ties; count multiply-adds where asked."""
        self._counting = count_macs
        values: dict[Any, Any] = {}
        inputs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        for node in program.graph.nodes:
            self._node = node
            if node.op == "placeholder":
                values[node] = self._placeholder(node, inputs[node.name])
            elif node.op == "call_function":
                values[node] = self._call(node, values)
            elif node.op == "get_attr":
                values[node] = None
            elif node.op == "output":
                self._note_outputs(program, node, values)

    # ------------------------------------------------------------ what rules use

    def unify(self, left: Dim | None, right: Dim | None, why_fixed: str) -> None:
        """Tie two dimensions; a missing label fixes the other one."""
        if left is not None and right is not None:
            self.symbols.unify(left, right, self.reason(why_fixed))
        else:
            self.fix(left if left is not None else right, self.reason(why_fixed))

    def join(self, dims: Sequence[Dim | None], why_fixed: str) -> Dim | None:
        """Tie all the dimensions, and return one of them."""
        known = [dim for dim in dims if dim is not None]
        for dim in known[1:]:
            self.unify(known[0], dim, why_fixed)
        if known and len(known) < len(dims):
            self.fix(known[0], self.reason(why_fixed))
        return known[0] if known else None

    def fix(self, dim: Dim | None, reason: Reason) -> None:
        """Hold a dimension at full width."""
        if dim is not None:
            self.symbols.fix(dim, reason)

    def birth(self, dim: Dim, weight: Labels) -> None:
        """Note a dimension that a layer produces: these are what can be searched."""
        self.births.append((dim, self._names.get(id(weight), "")))

    def count_macs(self, positions: Labels, weight: Labels, out: Dim) -> None:
        """Note that every element of the weight is multiplied at every position, batch included, to make `out`."""
        if self._counting:
            owner = owner_of(self._names.get(id(weight), ""))
            layer = owner or self._module(self._node) or str(self._node.target)
            self.macs.append(MacsEntry(layer, out, positions, weight))

    def reason(self, text: str, remedy: str = "") -> Reason:
        """A reason that names the operator at hand and its source line."""
        return Reason(text, str(self._node.target), self.where(self._node), remedy)

    @staticmethod
    def where(node: Any) -> str:
        """Module and last source line of the node's stack."""
        module = Propagation._module(node)
        lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
        files = [line for line in lines if line.startswith("File ")]
        line = files[-1].removeprefix("File ").replace('"', "").rpartition(", in ")[0] if files else ""
        return f"{module} at {line}" if module and line else module or line

    @staticmethod
    def _module(node: Any) -> str:
        """The innermost module that the node belongs to; empty for the network itself."""
        stack = node.meta.get("nn_module_stack") or {}
        return next((path for path, _ in reversed(list(stack.values())) if path), "")

    # ------------------------------------------------------------ graph walk

    def _placeholder(self, node: Any, spec: Any) -> Any:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            return self.tensors[spec.target]
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return value
        shape = tuple(value.shape)
        if spec.kind is not InputKind.USER_INPUT or len(shape) < 2:
            return Labels(shape, (None,) * len(shape))
        channels = self.symbols.fresh(shape[1], Reason("the network's input"))
        self.inputs.append(channels)
        return Labels(shape, (None, channels, *(None,) * (len(shape) - 2)))

    def _call(self, node: Any, values: dict[Any, Any]) -> Any:
        args, kwargs = _filled_in(node.args, values), _filled_in(dict(node.kwargs), values)
        name = getattr(node.target, "_schema", None)
        operator = name.name.split("::")[-1] if name is not None else node.target.__name__
        namespace = name.name.split("::")[0] if name is not None else "aten"
        found = RULES.get(operator) if namespace == "aten" else None
        if found is None:
            tensors = [item for item in _flat([args, kwargs]) if isinstance(item, Labels)]
            return unknown(self, node, tensors)
        kwargs = {key: value for key, value in kwargs.items() if key not in _LAYOUT_OPTIONS}
        return found(self, node, *args, **kwargs)

    def _note_outputs(self, program: ExportedProgram, node: Any, values: dict[Any, Any]) -> None:
        """The leaves of what the model returns, in a dict, a tuple or alone; fixed unless they may vary."""
        specs = program.graph_signature.output_specs
        outputs = tuple(
            values[argument]
            for spec, argument in zip(specs, node.args[0], strict=True)
            if spec.kind is OutputKind.USER_OUTPUT and isinstance(values.get(argument), Labels)
        )
        self.outputs.append(outputs)
        if not self._vary_outputs:
            for dim in (dim for labels in outputs for dim in labels.dims):
                self.fix(dim, Reason("the network's output", remedy="vary_outputs=True lets it change"))


def owner_of(tensor: str) -> str:
    """The module of a parameter's name, or the name itself where the network owns it directly."""
    return tensor.rpartition(".")[0] or tensor


_LAYOUT_OPTIONS = {"memory_format", "dtype", "layout", "device", "pin_memory", "non_blocking", "copy", "generator"}


def _filled_in(item: Any, values: dict[Any, Any]) -> Any:
    """A node's arguments with every node replaced by its value."""
    if isinstance(item, torch.fx.Node):
        return values[item]
    if isinstance(item, (tuple, list)):
        return tuple(_filled_in(part, values) for part in item)
    if isinstance(item, dict):
        return {key: _filled_in(part, values) for key, part in item.items()}
    return item


def _flat(item: Any) -> list[Any]:
    if isinstance(item, dict):
        item = list(item.values())
    if isinstance(item, (tuple, list)):
        return [leaf for part in item for leaf in _flat(part)]
    return [item]
