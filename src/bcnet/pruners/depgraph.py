"""Global structured pruning by Torch-Pruning (Fang et al., DepGraph, CVPR 2023).

Channels are ranked over all layers together ("global pruning"; one ratio for every layer would be the Uniform
baseline): by the norm of all their weights, or by the first-order Taylor term of the loss in these weights (Molchanov
et al., CVPR 2019). The lowest-ranked ones are removed, half a percent at a time, until the budget is satisfied by the
exact costs of the space. Each layer keeps at least the space's narrowest choice. Otherwise some layers would be left
with a single channel, and the network could not learn.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bcnet.errors import BudgetError, ModelError
from bcnet.machine.onednn import UnitStrides
from bcnet.pruners.reading import check_installed, narrowest_ratio, read_widths
from bcnet.pytree import Pytree
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.space.narrowing import tensors_of

_STEPS = 200  # each removes half a percent of all channels
_APART = 2**26  # indices along the second dimension are smaller, and twice as many bits are exact in float64


@dataclass(frozen=True)
class Pruned:
    """A pruned network: the width of every group, and the kept channels in order.

    A width can exceed the number of kept channels if the space has no choice that narrow.

    """

    widths: Widths
    kept: tuple[tuple[int, ...], ...]


def depgraph_pruned(
    model: nn.Module,
    space: WidthSpace,
    budget: Budget,
    example: Pytree,
    *,
    loss: Callable[[nn.Module], Tensor] | None = None,
) -> Pruned:
    """Return the result of global pruning of the trained `model` under `budget`.

    Args:
        model: the trained network that `space` was traced from; it is not changed.
        space: its width space.
        budget: the limit.
        example: an input `(batch, ...)` of the network.
        loss: returns the loss of a network on some training images, others at every call. Channels are ranked by its
            Taylor terms; without it, by magnitude.

    Raises:
        RecipeError: Torch-Pruning is not installed.
        BudgetError: it cannot reach the budget.
        ModelError: it cannot prune this network, prunes layers of one group differently, or prunes dimensions that the
            space pins at full width.
    """
    check_installed("magnitude")
    limits = budget.resolve(space.reference)
    network = copy.deepcopy(model)
    strides = UnitStrides(network)
    pruner = _attempt(lambda: _pruner(network, space, example, by_taylor=loss is not None), network)

    def step() -> None:
        if loss is not None:
            network.zero_grad()
            with strides.apply():
                torch.autograd.backward(loss(network))
        pruner.step()

    widths = space.full
    for _ in range(_STEPS):
        if limits.admits(space.cost(widths)):
            break
        _attempt(step, network)
        left = read_widths(network, space)
        # The package checks its own limit before a step, which then exceeds it.
        widths = tuple(max(width, group.choices[0]) for width, group in zip(left, space.groups, strict=True))
    if not limits.admits(space.cost(widths)):
        raise BudgetError(
            f"pruning must reach the budget, {limits}; Torch-Pruning stopped at {space.cost(widths).macs:,} MACs of "
            f"{space.reference.macs:,}, keeping the narrowest choice of every layer: raise the budget"
        )
    return Pruned(widths, _kept_channels(model, space, example, pruner.pruning_history()))


def _kept_channels(model: nn.Module, space: WidthSpace, example: Pytree, history: Any) -> tuple[tuple[int, ...], ...]:
    """Return the channels of every group that a history of prunings kept, in order.

    The history is repeated on a network with weights `W[i, j, ...] = i * 2^26 + j`, which identify the kept channels.
    """
    # The pruner reports indices in its own order of steps; numbered weights show what is left at the end.
    numbered = copy.deepcopy(model)
    pruner = _attempt(lambda: _pruner(numbered, space, example), numbered)
    for parameter in dict.fromkeys(numbered.parameters()):
        rows, columns = (torch.arange(size, dtype=torch.float64) for size in (*parameter.shape, 1, 1)[:2])
        numbers = (rows[:, None] * _APART + columns).view([*parameter.shape[:2], *[1] * (parameter.ndim - 2)])
        parameter.data = numbers.expand(parameter.shape).to(parameter.device).contiguous()
    _attempt(lambda: pruner.load_pruning_history(history), numbered)
    left = tensors_of(numbered)
    kept: dict[int, tuple[int, ...]] = {}
    for name, layout in space.layouts.items():
        for d, dim in enumerate(layout[:2]):
            segment = dim[0]
            if len(dim) == 1 and segment.group is not None and isinstance(left[name], nn.Parameter):
                numbers = left[name].detach().movedim(d, 0).reshape(left[name].shape[d], -1)[:, 0].long()
                # Dimension 0 is in the high digits of a weight's number, dimension 1 in the low ones.
                elements = numbers % _APART if d else numbers // _APART
                kept.setdefault(segment.group, tuple(sorted({int(e) // segment.per_channel for e in elements})))
    return tuple(kept[g] for g in range(len(space.groups)))


def _attempt(action: Callable[[], Any], network: nn.Module) -> Any:
    """Return the result of a call of the package, without its warnings; convert any error to one of ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return action()
    except Exception as error:
        raise ModelError(
            f"pruning needs a network that Torch-Pruning can prune; {type(network).__name__} failed in it "
            f"with {type(error).__name__}: {error}: take another baseline"
        ) from error


def _pruner(network: nn.Module, space: WidthSpace, example: Pytree, *, by_taylor: bool = False) -> Any:
    import torch_pruning

    importance = torch_pruning.importance
    for parameter in network.parameters():
        parameter.requires_grad_(True)  # its tracing needs gradients
    return torch_pruning.pruner.BasePruner(
        network,
        example,
        importance=importance.GroupTaylorImportance() if by_taylor else importance.GroupMagnitudeImportance(p=2),
        global_pruning=True,
        pruning_ratio=1.0,  # of all channels, if no layer had a minimum
        max_pruning_ratio=1 - narrowest_ratio(space),
        iterative_steps=_STEPS,
        ignored_layers=_ungrouped_layers(network, space),
    )


def _ungrouped_layers(network: nn.Module, space: WidthSpace) -> list[nn.Module]:
    """Return the layers whose output channels belong to no group."""
    held: list[nn.Module] = []
    for name, part in network.named_modules():
        if isinstance(part, (nn.modules.conv._ConvNd, nn.Linear)):
            out = 1 if isinstance(part, nn.modules.conv._ConvTransposeNd) else 0
            layout = space.layouts.get(f"{name}.weight" if name else "weight")
            if layout is None or all(segment.group is None for segment in layout[out]):
                held.append(part)
    return held
