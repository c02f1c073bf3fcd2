"""Propagation: channel labels carried through an exported graph by one rule per operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from bcnet.errors import TraceError
from bcnet.space.labels import Labels, Propagation
from bcnet.space.liveness import live_sets
from bcnet.space.rules import MADE_OF_NOTHING, RULES, broadcast, operator_of, unknown
from bcnet.space.symbols import Reason


def propagate(p: Propagation, program: ExportedProgram, *, count_macs: bool) -> None:
    """Carry labels through one exported graph, and tie dimensions; optionally count multiply-adds and memory."""
    p.counting = count_macs
    values: dict[Any, Any] = {}
    inputs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    of_input: set[Any] = set()
    for node in program.graph.nodes:
        p.node = node
        if node.op == "placeholder":
            values[node] = _placeholder(p, node, inputs[node.name])
            if inputs[node.name].kind is InputKind.USER_INPUT:
                of_input.add(node)
        elif node.op == "output":
            _note_outputs(p, program, node, values)
        else:
            _evaluate(p, node, values, of_input)
    if count_macs:
        p.live = live_sets(program, values, of_input)


def _evaluate(p: Propagation, node: Any, values: dict[Any, Any], of_input: set[Any]) -> None:
    """Return the labels of a node that is neither input nor output."""
    p.node = node
    p.of_input = any(source in of_input for source in node.all_input_nodes)
    if p.of_input:
        of_input.add(node)
        of_input.update(_written_tensors(node))
    if node.op == "get_attr":
        values[node] = None
    elif getattr(node.target, "__name__", "") in _REGIONS:
        values[node] = _region(p, node, values, of_input)
    else:
        values[node] = _call(p, node, values)
        if isinstance(values[node], Labels):
            p.note(values[node])


def _written_tensors(node: Any) -> Iterator[Any]:
    """Return what an in-place operator writes to: its first argument, and the tensors it is a view of."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable or not node.args:
        return
    target = node.args[0]
    while isinstance(target, torch.fx.Node):
        yield target
        target = target.args[0] if getattr(target.target, "is_view", False) and target.args else None


_REGIONS = {
    "wrap_with_set_grad_enabled": 2,
    "wrap_with_autocast": 5,
}  # arguments before the operands; the last is the graph


def _region(p: Propagation, node: Any, values: dict[Any, Any], of_input: set[Any]) -> Any:
    """Propagate through a nested graph that has its own mode, such as no_grad or a checkpoint."""
    first = _REGIONS[node.target.__name__]
    inner = getattr(node.graph.owning_module, node.args[first - 1].target)
    operands = iter(node.args[first:])
    result: Any = None
    for part in inner.graph.nodes:
        if part.op == "placeholder":
            source = next(operands)
            values[part] = _filled_in(source, values)
            if source in of_input:
                of_input.add(part)
        elif part.op == "output":
            result = _filled_in(part.args[0], values)
        else:
            _evaluate(p, part, values, of_input)
    return result


def _placeholder(p: Propagation, node: Any, spec: Any) -> Any:
    if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
        if node.users:
            p.used.add(id(p.tensors[spec.target]))
        return p.tensors[spec.target]
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return value
    shape = tuple(value.shape)
    if spec.kind is not InputKind.USER_INPUT or len(shape) < 2:
        return Labels(shape, (None,) * len(shape))
    channels = p.symbols.new_dim(shape[1], Reason("the network's input"))
    p.inputs.append(channels)
    return Labels(shape, (None, channels, *(None,) * (len(shape) - 2)))


def _call(p: Propagation, node: Any, values: dict[Any, Any]) -> Any:
    args = _filled_in(node.args, values)
    kwargs = _filled_in(dict(node.kwargs), values)
    found = RULES.get(operator_of(node))
    tensors = [item for item in _flatten([args, kwargs]) if isinstance(item, Labels)]
    if found is None and not tensors and operator_of(node) in MADE_OF_NOTHING:
        return p.label_new(node.meta["val"])
    if found is None and torch.Tag.pointwise in getattr(node.target, "tags", ()):
        return broadcast(p, node, *_flatten([args, kwargs]))
    if found is None:
        return unknown(p, node, tensors)
    if not tensors:  # arithmetic of sizes
        return None
    kwargs = {key: value for key, value in kwargs.items() if key not in _LAYOUT_OPTIONS}
    try:
        return found(p, node, *args, **kwargs)
    except (TypeError, ValueError, IndexError, GuardOnDataDependentSymNode):
        return unknown(p, node, tensors, "a form that its rule does not know of")


def _note_outputs(p: Propagation, program: ExportedProgram, node: Any, values: dict[Any, Any]) -> None:
    """Record the model's output tensors, in a dict, a tuple or alone; pin them unless they may vary."""
    specs = program.graph_signature.output_specs
    outputs = tuple(
        values[argument]
        for spec, argument in zip(specs, node.args[0], strict=True)
        if spec.kind is OutputKind.USER_OUTPUT and isinstance(values.get(argument), Labels)
    )
    if not all(isinstance(size, int) for labels in outputs for size in labels.shape):
        raise TraceError(
            "the shapes of a network's outputs depend on its widths and its input's shape alone; got one that the data "
            "decide (a mask or nonzero): leave the selection to the code that calls the network"
        )
    p.outputs.append(outputs)
    if not p.vary_outputs:
        for dim in (dim for labels in outputs for dim in labels.dims):
            p.fix(dim, Reason("the network's output", remedy="vary_outputs=True lets it change"))


_LAYOUT_OPTIONS = {"memory_format", "dtype", "layout", "device", "pin_memory", "non_blocking", "copy", "generator"}


def _filled_in(item: Any, values: dict[Any, Any]) -> Any:
    """Return a node's arguments with every node replaced by its value."""
    if isinstance(item, torch.fx.Node):
        return values[item]
    if isinstance(item, (tuple, list)):
        return tuple(_filled_in(part, values) for part in item)
    if isinstance(item, dict):
        return {key: _filled_in(part, values) for key, part in item.items()}
    return item


def _flatten(item: Any) -> list[Any]:
    if isinstance(item, dict):
        item = list(item.values())
    if isinstance(item, (tuple, list)):
        return [leaf for part in item for leaf in _flatten(part)]
    return [item]
