"""Liveness: the tensors that a network holds at the same time while it runs.

The schedule is that of the exported graph in eval mode. A tensor lives from the operator that makes it to the last one
that reads it or a view of it. The input lives from the start, outputs to the end; weights are not counted. Operators
that every engine fuses into the layer before need no memory of their own: batch norm and activations overwrite their
input if nothing reads it afterwards. Scratch space of operators and tensors of data-dependent size are not counted.

"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from typing import Any

import torch
from torch.export import ExportedProgram

from bcnet.space.labels import Labels, LiveTensor
from bcnet.space.rules import operator_of

LiveSet = tuple[LiveTensor, ...]  # tensors of one moment

_VIEWS = frozenset(
    {
        "view", "view_as", "permute", "transpose", "swapaxes", "swapdims", "t", "unsqueeze", "squeeze", "expand",
        "expand_as", "broadcast_to", "select", "slice", "narrow", "split", "split_with_sizes", "chunk", "tensor_split",
        "unbind", "unflatten", "getitem", "detach", "alias", "movedim",
    }
)  # fmt: skip
_VIEWS_OF_WHOLE_MEMORY = frozenset({"reshape", "reshape_as", "flatten", "contiguous", "_unsafe_view"})
_IDLE_IN_EVAL = frozenset({"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"})
_FOLDED = frozenset(
    {
        "batch_norm", "relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max", "silu", "gelu", "sigmoid",
        "hardswish", "hardsigmoid", "tanh", "elu", "selu", "celu", "leaky_relu", "mish", "softplus", "prelu",
    }
)  # fmt: skip


def live_sets(program: ExportedProgram, values: Mapping[Any, Any], of_input: Set[Any]) -> tuple[LiveSet, ...]:
    """Return the simultaneously live tensors at every moment that is not dominated by another.

    `values` are the propagated labels of the graph's nodes; `of_input` are the nodes that depend on the input.
    """
    schedule = _Schedule(program, values, of_input)
    moments = dict.fromkeys(schedule.moments())
    largest = [moment for moment in moments if not any(moment < other for other in moments)]
    return tuple(tuple(schedule.tensors[number] for number in sorted(moment)) for moment in largest)


class _Schedule:
    """Tensors by number with their first and last moment; `held` maps nodes to the tensors that hold their values."""

    def __init__(self, program: ExportedProgram, values: Mapping[Any, Any], of_input: Set[Any]) -> None:
        self.tensors: list[LiveTensor] = []
        self._of_input = of_input
        self._born: list[int] = []
        self._nodes: dict[int, list[Any]] = defaultdict(list)  # nodes whose values are in the tensor
        self._held: dict[Any, Any] = {}
        nodes = list(program.graph.nodes)
        self._position = {node: position for position, node in enumerate(nodes)}
        self._last: dict[Any, int] = {}
        inputs = set(program.graph_signature.user_inputs)
        for node in nodes:
            if node.op == "placeholder" and node.name in inputs:
                self._visit_new(node, values[node])
            elif node.op == "call_function":
                self._visit_call(node, values[node])

    def moments(self) -> Iterator[frozenset[int]]:
        """Yield the numbers of the tensors that are live while each operator runs."""
        ends = [max([born, *map(self._last_use, self._nodes[number])]) for number, born in enumerate(self._born)]
        for node, position in self._position.items():
            if node.op == "call_function":
                yield frozenset(n for n, born in enumerate(self._born) if born <= position <= ends[n])

    def _visit_call(self, node: Any, value: Any) -> None:
        source = next(iter(node.all_input_nodes), None)
        held = self._held.get(source)
        if held is None:  # a weight, a constant, or no value
            self._visit_new(node, value)
        elif operator_of(node) == "getitem":
            self._is_in(node, held[node.args[1]] if isinstance(held, tuple) else held)
        elif _is_view(node) or (operator_of(node) in _FOLDED and self._ends_with(held, node)):
            self._is_in(node, held)
        else:
            self._visit_new(node, value)

    def _visit_new(self, node: Any, value: Any) -> None:
        """Add the tensors that a node makes."""
        if isinstance(value, Labels) and all(isinstance(size, int) for size in value.shape):
            self._is_in(node, self._add(node, value))
        elif isinstance(value, tuple):  # each lives as long as the node that selects it
            self._held[node] = tuple(self._add(node, part) if isinstance(part, Labels) else None for part in value)

    def _add(self, node: Any, labels: Labels) -> int:
        self.tensors.append(LiveTensor(labels, node in self._of_input))
        self._born.append(self._position[node])
        return len(self.tensors) - 1

    def _is_in(self, node: Any, held: Any) -> None:
        self._held[node] = held
        if held is not None:
            self._nodes[held].append(node)

    def _ends_with(self, held: Any, node: Any) -> bool:
        """Return whether nothing reads a tensor after `node`."""
        return isinstance(held, int) and all(self._last_use(n) <= self._position[node] for n in self._nodes[held])

    def _last_use(self, node: Any) -> int:
        """Return the position of the last operator that reads a node's value or a view of it; its own if none does.

        An in-place operator works on its first argument.
        """
        if node not in self._last:
            uses = [self._position[node], *(self._position[user] for user in node.users)]
            views = [user for user in node.users if user.all_input_nodes[0] is node and _is_view(user)]
            self._last[node] = max([*uses, *map(self._last_use, views)])
        return self._last[node]


def _is_view(node: Any) -> bool:
    """Return whether a node's value shares the memory of its first argument."""
    operator = operator_of(node)
    if operator in _VIEWS or operator in _IDLE_IN_EVAL or operator.endswith("_"):  # in place
        return True
    if not node.all_input_nodes:
        return False
    before, after = (n.meta.get("val") for n in (node.all_input_nodes[0], node))
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    if operator in ("to", "_to_copy", "type_as"):
        return before.dtype == after.dtype and before.device == after.device
    return operator in _VIEWS_OF_WHOLE_MEMORY and before.is_contiguous()
