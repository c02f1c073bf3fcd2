"""Propagation: channel labels carried through an exported graph, one operator rule after another."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from bcnet.space.labels import Labels, Propagation
from bcnet.space.liveness import live_sets
from bcnet.space.rules import RULES, unknown
from bcnet.space.symbols import Reason


def propagate(p: Propagation, program: ExportedProgram, *, count_macs: bool) -> None:
    """Carry labels through one exported graph, tying what it ties; count multiply-adds and memory where asked."""
    p.counting = count_macs
    values: dict[Any, Any] = {}
    inputs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        p.node = node
        if node.op == "placeholder":
            values[node] = _placeholder(p, node, inputs[node.name])
        elif node.op == "call_function":
            values[node] = _call(p, node, values)
        elif node.op == "get_attr":
            values[node] = None
        elif node.op == "output":
            _note_outputs(p, program, node, values)
    if count_macs:
        p.live = live_sets(program, values)


def _placeholder(p: Propagation, node: Any, spec: Any) -> Any:
    if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
        return p.tensors[spec.target]
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return value
    shape = tuple(value.shape)
    if spec.kind is not InputKind.USER_INPUT or len(shape) < 2:
        return Labels(shape, (None,) * len(shape))
    channels = p.symbols.fresh(shape[1], Reason("the network's input"))
    p.inputs.append(channels)
    return Labels(shape, (None, channels, *(None,) * (len(shape) - 2)))


def _call(p: Propagation, node: Any, values: dict[Any, Any]) -> Any:
    args, kwargs = _filled_in(node.args, values), _filled_in(dict(node.kwargs), values)
    name = getattr(node.target, "_schema", None)
    operator = name.name.split("::")[-1] if name is not None else node.target.__name__
    namespace = name.name.split("::")[0] if name is not None else "aten"
    found = RULES.get(operator) if namespace == "aten" else None
    if found is None:
        tensors = [item for item in _flat([args, kwargs]) if isinstance(item, Labels)]
        return unknown(p, node, tensors)
    kwargs = {key: value for key, value in kwargs.items() if key not in _LAYOUT_OPTIONS}
    return found(p, node, *args, **kwargs)


def _note_outputs(p: Propagation, program: ExportedProgram, node: Any, values: dict[Any, Any]) -> None:
    """The leaves of what the model returns, in a dict, a tuple or alone; fixed unless they may vary."""
    specs = program.graph_signature.output_specs
    outputs = tuple(
        values[argument]
        for spec, argument in zip(specs, node.args[0], strict=True)
        if spec.kind is OutputKind.USER_OUTPUT and isinstance(values.get(argument), Labels)
    )
    p.outputs.append(outputs)
    if not p.vary_outputs:
        for dim in (dim for labels in outputs for dim in labels.dims):
            p.fix(dim, Reason("the network's output", remedy="vary_outputs=True lets it change"))


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
