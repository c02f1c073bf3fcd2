"""Channel importance of a trained network. Sorted by it, a path of first channels has the most important ones.

Notation: `W` runs over the weights of the network, without biases. `W[g, i]` are the elements of `W` that belong to
channel `i` of group `g`: the filters that produce it, the scale of its batch norm, and the slices of all layers that
read it. Importance is their squared magnitude (Li et al., ICLR 2017; over coupled layers Fang et al., DepGraph,
CVPR 2023):

    I(g, i) = sum over W of  ||W[g, i]||^2

Sorting does not change the network's function, since everything that produces, holds and reads a channel moves with it.
The exception is a forward that couples neighbouring channels, such as a convolution along them; such groups keep their
order.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from bcnet.machine.random_means import means_of_random
from bcnet.pytree import Pytree, as_float, call_model, check_close
from bcnet.space import WidthSpace
from bcnet.space.compiled import undo_compile
from bcnet.space.layout import Layout, Segment, follows_widths
from bcnet.space.narrowing import tensors_of
from bcnet.supernet.supernet import check_fits

Order = tuple[int, ...]
"""All channels of a group, those to keep first."""


def by_importance(model: nn.Module, space: WidthSpace) -> tuple[Order, ...]:
    """Return the channels of every group, the most important first, equals in their own order.

    If the widths of a group are multiples of a unit, units are ranked and their channels stay together.

    Raises:
        WidthError: the model is not the one that the space was traced from.
    """
    model = undo_compile(model)
    check_fits(model, space)
    totals = [torch.zeros(group.max_width // group.unit, dtype=torch.float64) for group in space.groups]
    for name, parameter in model.named_parameters():
        if name in space.layouts and not name.endswith("bias"):
            squares = parameter.detach().to("cpu", torch.float64).square()
            for d, dim in enumerate(space.layouts[name]):
                along = squares.movedim(d, 0).reshape(squares.shape[d], -1).sum(1)  # (size of the dimension,)
                for segment, part in zip(dim, torch.split(along, [s.size for s in dim]), strict=True):
                    if segment.group is not None:
                        totals[segment.group] += part.view(len(totals[segment.group]), -1).sum(1)
    return tuple(_order(total, group.unit) for total, group in zip(totals, space.groups, strict=True))


def both_ends(orders: Sequence[Order], space: WidthSpace) -> tuple[Order, ...]:
    """Reorder the result of `by_importance` so that both ends of a group are alike: ranks 0, 2, 4, ..., 5, 3, 1.

    Units stay together. The left and right paths of a supernet then have equally important channels.
    """
    ordered = []
    for order, group in zip(orders, space.groups, strict=True):
        units = [order[i : i + group.unit] for i in range(0, len(order), group.unit)]
        ordered.append(tuple(channel for unit in (*units[::2], *units[1::2][::-1]) for channel in unit))
    return tuple(ordered)


def reorder(model: nn.Module, space: WidthSpace, orders: Sequence[Order], example: Pytree) -> nn.Module:
    """Return a copy of the model with its channels in `orders`, which computes the same function.

    Args:
        model: the network `space` was traced from; it is not changed.
        space: its width space.
        orders: one for each group. A group keeps its order if the new one would change the outputs.
        example: a network input, `(batch, ...)`, on which outputs are compared.

    Raises:
        WidthError: the model is not the one that the space was traced from.
    """
    model = undo_compile(model)
    check_fits(model, space)
    kept = [*orders]
    # Usually all orders fit at once. Otherwise they are added group by group, each only if the outputs stay the same.
    if not _computes_the_same(model, space, kept, example):
        kept = [tuple(range(group.max_width)) for group in space.groups]
        for g, order in enumerate(orders):
            tried = [*kept[:g], order, *kept[g + 1 :]]
            kept = tried if _computes_the_same(model, space, tried, example) else kept
    return permute(copy.deepcopy(model), space, kept)


def _order(importance: torch.Tensor, unit: int) -> Order:
    """Return the channels of a group sorted by the importance of its units, `(units,)`."""
    units = importance.argsort(descending=True, stable=True)
    channels: list[int] = (units[:, None] * unit + torch.arange(unit)).flatten().tolist()
    return tuple(channels)


def permute(model: nn.Module, space: WidthSpace, orders: Sequence[Order]) -> nn.Module:
    """Permute channels in place: element `j` of a segment comes from entry `j` of its group's order."""
    tensors = {id(tensor): (name, tensor) for name, tensor in tensors_of(model).items() if name in space.layouts}
    with torch.no_grad():
        for name, tensor in tensors.values():  # a tensor under several names is permuted once
            moved = tensor
            for d, dim in enumerate(space.layouts[name]):
                if follows_widths(dim):
                    moved = moved.index_select(d, _index(dim, orders).to(tensor.device))
            tensor.copy_(moved)
    return model


def _index(dim: Layout, orders: Sequence[Order]) -> torch.Tensor:
    """Return the source index of each element of a dimension, `(size of the dimension,)`."""
    starts = torch.tensor([0, *(segment.size for segment in dim[:-1])]).cumsum(0)
    return torch.cat([start + _order_within(segment, orders) for start, segment in zip(starts, dim, strict=True)])


def _order_within(segment: Segment, orders: Sequence[Order]) -> torch.Tensor:
    if segment.group is None:
        return torch.arange(segment.size)
    order = torch.tensor(orders[segment.group])
    return (order[:, None] * segment.per_channel + torch.arange(segment.per_channel)).flatten()


def _computes_the_same(model: nn.Module, space: WidthSpace, orders: Sequence[Order], example: Pytree) -> bool:
    """Return whether the model's outputs stay the same, in float64, where a coupling is larger than rounding."""
    network = copy.deepcopy(model).double().eval()
    try:
        expected = _outputs(network, example)
    except (RuntimeError, TypeError):  # the model's own code requires a precision
        network = copy.deepcopy(model).eval()
        expected = _outputs(network, example)
    outputs = _outputs(permute(network, space, orders), example)
    try:
        check_close(outputs, expected)
    except AssertionError:
        return False
    return True


@torch.no_grad()
def _outputs(network: nn.Module, example: Pytree) -> Any:
    with means_of_random():
        return call_model(network, as_float(example, network))
