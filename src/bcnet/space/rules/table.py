"""The table of operator rules, and the helpers that rules use.

A rule takes the propagation, the graph node, and the node's arguments with every tensor replaced by its `Labels`. It
returns the labels of the result. `@rule(names)` adds it to the table. An operator without a rule pins everything it
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bcnet.space.labels import Labels, Propagation
from bcnet.space.symbols import Reason

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Register a rule for the ATen operators of these names (without overload)."""

    def enter(function: Rule) -> Rule:
        for operator in operators:
            RULES[operator] = function
        return function

    return enter


def out_shape(node: Any) -> tuple[int, ...]:
    """Return the shape of the node's result."""
    return tuple(node.meta["val"].shape)


def axes_of(x: Labels, named: int | Sequence[int] | None) -> Sequence[int]:
    """Return the dimensions that an argument names: one, several, or all of `x` for None."""
    if named is None:
        return range(len(x.shape))
    return [named] if isinstance(named, int) else named


def operator_of(node: Any) -> str:
    """Return the name of the node's operator without its overload, with its namespace unless that is torch's own."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return str(getattr(node.target, "__name__", node.target))
    namespace, _, name = schema.name.partition("::")
    return str(name) if namespace == "aten" else str(schema.name)


# Operators that make a tensor from a shape only. Their dimensions get the labels of what they meet.
MADE_OF_NOTHING = frozenset(
    {
        "zeros", "ones", "full", "empty", "rand", "randn", "new_zeros", "new_ones", "new_full", "new_empty",
        "empty_permuted",
    }
)  # fmt: skip

# Operators without multiplications that have no rule, or none for every form.
_NO_PRODUCTS = frozenset(
    {
        "_assert_async", "affine_grid_generator", "all", "any", "argmax", "argmin", "argsort", "as_strided", "col2im",
        "diag_embed", "embedding", "gather", "grid_sampler", "histc", "index", "index_put", "index_put_", "isfinite",
        "isinf", "isnan", "item", "masked_select", "median", "meshgrid", "nonzero", "one_hot", "searchsorted", "sort",
        "take", "take_along_dim", "topk", "unique_dim",
    }
)  # fmt: skip


def unknown(p: Propagation, node: Any, arguments: Sequence[Any], why: str = "") -> Any:
    """Pin everything that an operator without a rule reads.

    `why` gives the reason if the operator has a rule for other forms.
    """
    remedy = "use another operator there, or add a rule for it to bcnet.space.rules"
    text = f"no rule for operator {node.target}" if not why else f"operator {node.target} in {why}"
    reason = Reason(text, str(node.target), p.source_line(node), remedy)
    for labels in arguments:
        for dim in labels.dims:
            p.fix(dim, reason)
    if arguments and operator_of(node) not in _NO_PRODUCTS:
        count_nothing(p, node)
    return _without_labels(node.meta.get("val"))


def count_nothing(p: Propagation, node: Any) -> None:
    """Record that the node's multiplications are not part of the cost."""
    if p.counting:
        where = p.source_line(node)
        p.uncounted[f"{node.target} ({where})" if where else str(node.target)] = None


def _without_labels(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_without_labels(v) for v in value)
    return Labels(tuple(value.shape), (None,) * len(value.shape)) if hasattr(value, "shape") else value
