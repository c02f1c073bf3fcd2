"""The table of operator rules, and what a rule works with.

A rule takes the propagation, the graph node and the node's arguments with every tensor replaced by its `Labels`, and
returns the labels of the result. `@rule(names)` enters it into the table; an operator without a rule fixes what it
touches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bcnet.space.labels import Labels, Propagation
from bcnet.space.symbols import Reason

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Enter a rule for the ATen operators of these names (without overload)."""

    def enter(function: Rule) -> Rule:
        for operator in operators:
            RULES[operator] = function
        return function

    return enter


def out_shape(node: Any) -> tuple[int, ...]:
    """Shape of the node's result."""
    return tuple(node.meta["val"].shape)


def unknown(p: Propagation, node: Any, arguments: Sequence[Any]) -> Any:
    """What happens at an operator without a rule: everything it touches is pinned at full width."""
    remedy = "use another operator there, or add a rule for it to bcnet.space.rules"
    reason = Reason(f"no rule for operator {node.target}", str(node.target), p.where(node), remedy)
    for labels in arguments:
        for dim in labels.dims:
            p.fix(dim, reason)
    return _unlabelled(node.meta.get("val"))


def _unlabelled(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_unlabelled(v) for v in value)
    return Labels(tuple(value.shape), (None,) * len(value.shape)) if hasattr(value, "shape") else value
