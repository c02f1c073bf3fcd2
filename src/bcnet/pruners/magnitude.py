"""Magnitude pruning by Torch-Pruning (Fang et al., DepGraph, CVPR 2023).

Channels are ranked by the norm of all weights that go with them, over all layers together ("global pruning": one ratio
in every layer would be the Uniform baseline again). The weakest go, half a percent at a time, until the budget holds by
the exact costs of the space. A layer keeps as many as the space's narrowest choice for it: ranked over all layers, some
would else be left with a single channel, and the network with nothing to learn from.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

from torch import nn

from bcnet.errors import BudgetError, ModelError
from bcnet.nests import Nest
from bcnet.pruners.extras import check_installed
from bcnet.pruners.reading import narrowest_ratio, read_widths
from bcnet.space import Budget, Widths, WidthSpace

_STEPS = 200  # half a percent of all channels each


def magnitude_widths(model: nn.Module, space: WidthSpace, budget: Budget, example: Nest) -> Widths:
    """The widths that magnitude pruning leaves in the trained `model` under `budget`.

    Args:
        model: the trained network that `space` was traced from; it is not changed.
        space: its width space.
        budget: the limit.
        example: what the network takes, `(batch, ...)`.

    Raises:
        RecipeError: Torch-Pruning is not installed.
        BudgetError: it does not get there.
        ModelError: it cannot prune this network, cuts layers of one group differently, or cuts what the space holds at
            full width.
    """
    check_installed("magnitude")
    limits = budget.resolve(space.reference)
    network = copy.deepcopy(model)
    pruner = _attempted(lambda: _pruner(network, space, example), network)
    widths = space.full
    for _ in range(_STEPS):
        if limits.admits(space.cost(widths)):
            break
        _attempted(pruner.step, network)
        left = read_widths(network, space)
        # The package looks at its own limit before a step, which then goes beyond it.
        widths = tuple(max(width, group.choices[0]) for width, group in zip(left, space.groups, strict=True))
    if not limits.admits(space.cost(widths)):
        raise BudgetError(
            f"magnitude pruning must reach the budget, {limits}; Torch-Pruning stopped at {space.cost(widths).macs:,} "
            f"MACs of {space.reference.macs:,}, keeping the narrowest choice of every layer: raise the budget"
        )
    return widths


def _attempted(action: Callable[[], Any], network: nn.Module) -> Any:
    """What a call of the package gives, without its warnings; whatever it raises is told as an error of ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return action()
    except Exception as error:
        raise ModelError(
            f"magnitude pruning needs a network that Torch-Pruning can prune; {type(network).__name__} failed in it "
            f"with {type(error).__name__}: {error}: take another baseline"
        ) from error


def _pruner(network: nn.Module, space: WidthSpace, example: Nest) -> Any:
    import torch_pruning

    for parameter in network.parameters():
        parameter.requires_grad_(True)  # its tracing follows gradients
    return torch_pruning.pruner.BasePruner(
        network,
        example,
        importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
        global_pruning=True,
        pruning_ratio=1.0,  # of all channels, had no layer to keep any
        max_pruning_ratio=1 - narrowest_ratio(space),
        iterative_steps=_STEPS,
        ignored_layers=_held(network, space),
    )


def _held(network: nn.Module, space: WidthSpace) -> list[nn.Module]:
    """The layers whose output channels belong to no group."""
    held: list[nn.Module] = []
    for name, part in network.named_modules():
        if isinstance(part, (nn.modules.conv._ConvNd, nn.Linear)):
            out = 1 if isinstance(part, nn.modules.conv._ConvTransposeNd) else 0
            layout = space.layouts.get(f"{name}.weight" if name else "weight")
            if layout is None or all(segment.group is None for segment in layout[out]):
                held.append(part)
    return held
