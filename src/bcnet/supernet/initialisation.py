"""Initial weights for other widths, drawn as the original's constructor would draw them.

Notation: a weight with `fan` inputs (or outputs) and variance `v` follows `v = gain / fan`. At other widths the same
rule gives the variance `v * fan_full / fan_narrow`. Constants (ones, zeros, zero gammas) are unchanged.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from bcnet.space import WidthSpace
from bcnet.space.layout import length

_GAINS = (1 / 3, 1.0, 2.0, 1 / 6, 25 / 9)  # PyTorch's default, Xavier- and Kaiming-like rules, depthwise halves, tanh
_TOLERANCE = 0.1
_COPIES = 2  # a distribution with few distinct values repeats them more often than this on average
_MOST_COUNTED = 2**20  # elements; single precision repeats values in larger draws
_ALIKE = 0.8  # a correlation of neighbours that independent draws do not reach
_FEWEST_ELEMENTS = 16  # fewest elements of a filter for a meaningful mean square
_FAR = 10.0  # standard errors of a filter's mean square from the overall one that independent draws do not reach


def redraw(model: nn.Module, generator: torch.Generator) -> None:
    """Draw new random weights for the model in place, from the distributions of its current weights.

    Weights of an untrained model are independent draws, so a random permutation of a tensor's elements is a draw from
    the same distribution, whatever it is. Tensors that cannot be independent draws (`_are_draws`), such as an identity
    transform or a ramp, keep their values. Layers of a trained model (`is_trained`) are reset by their own
    `reset_parameters`. Parameters without gradient are part of the function, such as a filter or a table, and keep
    their values bit for bit.
    """
    frozen = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
    if is_trained(model):
        _reset(model, generator)
    with torch.no_grad():
        for name, values in frozen.items():  # a layer's own reset would overwrite them
            model.get_parameter(name).copy_(values)
        for parameter in dict.fromkeys(p for p in model.parameters() if p.requires_grad):
            flat = parameter.flatten()
            order = torch.randperm(flat.numel(), generator=generator).to(flat.device)
            if _are_draws(parameter):
                parameter.copy_(flat[order].view_as(parameter))


def _are_draws(values: torch.Tensor) -> bool:
    """Return whether the values can be independent draws: distinct, unsorted, without correlated neighbours."""
    flat = values.detach().flatten()
    if flat.is_complex():
        flat = torch.view_as_real(flat)[:, 0]
    steps = flat.double().diff()
    if steps.numel() == 0 or bool((steps >= 0).all()) or bool((steps <= 0).all()):
        return False
    countable = flat.numel() <= _MOST_COUNTED and flat.element_size() >= 4  # lower precisions repeat values
    if countable and torch.unique(flat).numel() <= flat.numel() // _COPIES:
        return False
    return all(_correlation(values.detach(), dim) < _ALIKE for dim in range(values.ndim))


def _correlation(values: torch.Tensor, dim: int) -> float:
    """Return the correlation of neighbours along a dimension; 0 if there are too few."""
    size = values.shape[dim]
    if size < 2 or values.numel() < _FEWEST_ELEMENTS or values.is_complex():
        return 0.0
    centred = values.double() - values.double().mean()
    neighbours = (centred.narrow(dim, 1, size - 1) * centred.narrow(dim, 0, size - 1)).mean()
    return float(neighbours / centred.square().mean())


def rescale(model: nn.Module, full: nn.Module, space: WidthSpace, widths: tuple[int, ...]) -> None:
    """Scale the random weights of `model` (at `widths`) by the square root of the fan ratio to `full`."""
    with torch.no_grad():
        for prefix, part in full.named_modules():
            weight = getattr(part, "weight", None)
            if not isinstance(weight, nn.Parameter) or weight.ndim < 2:
                continue
            name = f"{prefix}.weight" if prefix else "weight"
            if name not in space.layouts:
                continue
            # Constructors draw with a variance that depends on the fan, which is smaller in the narrow layer.
            narrow = tuple(length(layout, widths) for layout in space.layouts[name])
            for key, parameter in part.named_parameters(recurse=False):
                if not parameter.requires_grad:
                    continue
                ratio = _variance_ratio(parameter, tuple(weight.shape), narrow)
                if ratio != 1:
                    model.get_parameter(f"{prefix}.{key}" if prefix else key).mul_(math.sqrt(ratio))


def is_trained(model: nn.Module) -> bool:
    """Return whether a model has trained weights.

    True if its batch norms have counted batches. Without batch norm, true if a third of its layers cannot be
    independent draws: some filters are much stronger than others (mean squares of filters with `n` draws differ by
    their standard error, `sqrt((kurtosis - 1) / n)`), or biases differ and exceed the bound of PyTorch's rule, `1 /
    sqrt(n)`.
    """
    counters = [b for name, b in model.named_buffers() if name.endswith("num_batches_tracked")]
    if counters:
        return any(bool(counter > 0) for counter in counters)
    layers = [part for part in model.modules() if isinstance(part, nn.Linear | nn.modules.conv._ConvNd)]
    return bool(layers) and 3 * sum(map(_is_far_from_drawn, layers)) >= len(layers)


def _is_far_from_drawn(layer: nn.Linear | nn.modules.conv._ConvNd) -> bool:
    weight = layer.weight
    if not weight.requires_grad or not weight.any():  # with zero weights a bias may be an identity transform
        return False
    bias = layer.bias
    if bias is not None and bias.numel() > 1:
        values = bias.detach()
        bound = 1 / math.sqrt(weight[0].numel())
        if bool(values.min() < values.max()) and float(values.abs().max()) > bound * (1 + 1e-6):
            return True
    if weight[0].numel() < _FEWEST_ELEMENTS:
        return False
    filters = weight.detach().double().flatten(1)  # (out, n)
    squares = filters.square()
    mean = squares.mean()
    if not mean > 0:
        return False
    kurtosis = squares.square().mean() / mean.square()
    error = ((kurtosis - 1).clamp(min=0.1) / filters.shape[1]).sqrt()
    return bool((squares.mean(dim=1) / mean - 1).abs().max() > _FAR * error)


def _reset(model: nn.Module, generator: torch.Generator) -> None:
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for part in model.modules():
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()


def _variance_ratio(tensor: torch.Tensor, full: tuple[int, ...], narrow: tuple[int, ...]) -> float:
    """Return `fan_full / fan_narrow` for the rule that fits the tensor; 1 if it is constant or no rule fits."""
    variance = float(tensor.double().var()) if tensor.numel() > 1 else 0.0
    if variance == 0:
        return 1.0
    kernel = math.prod(full[2:])
    slack = max(_TOLERANCE, 4 * math.sqrt(2 / tensor.numel()))
    fans = ((full[1] * kernel, full[1] / narrow[1]), (full[0] * kernel, full[0] / narrow[0]))  # in, out
    for fan, ratio in fans:
        if any(abs(variance * fan / gain - 1) < slack for gain in _GAINS):
            return ratio
    return 1.0
