"""Optimizers from recipes, and their state as named tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from bcnet.errors import RunError
from bcnet.train.recipe import Recipe

_KEYS: Mapping[type, set[str]] = {
    torch.optim.SGD: {"momentum_buffer"},
    torch.optim.RMSprop: {"step", "square_avg", "momentum_buffer"},
    torch.optim.AdamW: {"step", "exp_avg", "exp_avg_sq"},
}
STATES: Mapping[str, int] = {"sgd-nesterov": 1, "rmsprop": 2, "adamw": 2}
"""Optimizer tensors of a parameter's size."""


def make_optimizer(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the recipe's optimizer over all trainable parameters; the learning rate is set before every step."""
    groups = _decay_groups(module, recipe)
    if recipe.optimizer == "rmsprop":
        return torch.optim.RMSprop(groups, lr=recipe.lr, alpha=0.9, eps=1e-3, momentum=recipe.momentum)
    if recipe.optimizer == "adamw":
        # On a GPU the step count must be on the device: updates are undone without the host (`bcnet.train.guard`).
        on_gpu = next(module.parameters()).is_cuda
        return torch.optim.AdamW(groups, lr=recipe.lr, betas=(recipe.momentum, 0.999), capturable=on_gpu)
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=True)


def optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the optimizer state as `parameter name/state name` to tensor."""
    return {
        f"{name}/{key}": value
        for name, parameter in module.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, torch.Tensor)
    }


def restore_optimizer(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor]) -> None:
    """Restore the result of `optimizer_tensors`, on each parameter's device and in its memory format.

    Raises:
        RunError: a state for an unknown parameter, of another shape, or incomplete.
    """
    parameters = dict(module.named_parameters())
    optimizer.state.clear()
    for name, tensor in tensors.items():
        owner, _, key = name.rpartition("/")
        parameter = parameters.get(owner)
        if parameter is None or not _fits(key, tensor, parameter, _KEYS[type(optimizer)]):
            raise RunError(f"the optimiser's state {name!r} fits no parameter of this model: start a new run directory")
        if key == "step":
            on_device = optimizer.defaults.get("capturable", False)
            optimizer.state[parameter][key] = tensor.clone().to(parameter.device if on_device else "cpu")
        else:
            optimizer.state[parameter][key] = torch.empty_like(parameter).copy_(tensor)
    for learnt, state in optimizer.state.items():
        if set(state) != _KEYS[type(optimizer)]:
            raise RunError(
                f"the optimiser's state of a parameter {tuple(learnt.shape)} lacks "
                f"{', '.join(sorted(_KEYS[type(optimizer)] - set(state)))}: start a new run directory"
            )


def _fits(key: str, tensor: torch.Tensor, parameter: torch.Tensor, keys: set[str]) -> bool:
    if key == "step":
        return key in keys and tensor.ndim == 0
    return key in keys and tensor.shape == parameter.shape and tensor.dtype == parameter.dtype


def _decay_groups(module: nn.Module, recipe: Recipe) -> list[dict[str, object]]:
    parameters = [p for p in module.parameters() if p.requires_grad]
    if recipe.decay_norm_and_bias:
        return [{"params": parameters, "weight_decay": recipe.weight_decay}]
    matrices = [p for p in parameters if p.ndim > 1]
    vectors = [p for p in parameters if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
