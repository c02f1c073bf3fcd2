"""Build a plain network of the user's own class at given widths, without any object of this library inside."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from bcnet.errors import ModelError, WidthError
from bcnet.space import Side, WidthSpace
from bcnet.space.compiled import undo_compile
from bcnet.space.layout import spans
from bcnet.space.narrowing import Narrowing, take, tensors_of
from bcnet.space.widening import stretch, undo_widen
from bcnet.supernet.initialisation import is_trained, redraw, rescale
from bcnet.supernet.supernet import Supernet, check_fits, fits


def build(
    model: nn.Module,
    space: WidthSpace,
    widths: Sequence[int],
    *,
    weights: tuple[Supernet, Side] | None = None,
    factory: Callable[[], nn.Module] | None = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return a narrow `nn.Module` of the model's own class, ready to train, save and export.

    Without `weights` it is initialised as the original would be: a newly constructed full network (from `factory`, else
    redrawn from the distributions of `model`'s own weights) is sliced, and its random weights are rescaled to the
    narrower fans. With `weights=(supernet, side)` it holds the weights of that path; its batch norms have no statistics
    until `bcnet.recalibrate` sets them.

    Args:
        model: the network `space` was traced from; it is not changed.
        space: the model's width space, or the widened one (`WidthSpace.trace(..., widen=1.5)`).
        widths: one width per group, any multiples of the groups' units.
        weights: the supernet and the side whose weights to copy.
        factory: returns a newly initialised full network; required for a model that has been trained.
        generator: source of the initial weights (CPU; default: seed 0).

    Raises:
        WidthError: the widths or the model do not fit the space.
        ModelError: the factory makes another network.
    """
    space.check(widths)
    model = undo_compile(model)
    own = own_space(model, space)
    if weights is not None:
        supernet, side = weights
        if not isinstance(side, Side):
            raise WidthError(f"weights must be a supernet and a side; got {side!r} for the side")
        network = _copy_of(model, supernet)
        return narrow_in_place(network, space, widths, side)
    generator = generator or torch.Generator().manual_seed(0)
    full = _fresh_copy(model, factory, generator)
    if any(w > own_width for w, own_width in zip(widths, own.full, strict=True)):
        wide = stretch(copy.deepcopy(full), own, space.full, generator)
        rescale(wide, full, own, space.full)
        full = wide
        own = space
    network = narrow_in_place(copy.deepcopy(full), own, widths, Side.LEFT)
    rescale(network, full, own, tuple(widths))
    return network


def own_space(model: nn.Module, space: WidthSpace) -> WidthSpace:
    """Return `space`, or the original network's space if `space` is widened and `model` is the original.

    Raises:
        WidthError: the model has the shapes of neither.
    """
    own = undo_widen(space)
    if own is not space and fits(model, own):
        return own
    check_fits(model, space)
    return space


def _fresh_copy(model: nn.Module, factory: Callable[[], nn.Module] | None, generator: torch.Generator) -> nn.Module:
    if factory is None:
        full = copy.deepcopy(model)
        redraw(full, generator)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            full = undo_compile(factory())
        if is_trained(full):
            redraw(full, generator)
        if _class_of(full) != _class_of(model):
            raise ModelError(f"the factory must make a {type(model).__name__}; got {type(full).__name__}")
    _reset_statistics(full)
    return full


def _class_of(network: nn.Module) -> tuple[str, str]:
    """Return name and module of a class; a class defined in a function or notebook cell is new each time."""
    return type(network).__module__, type(network).__qualname__


def _reset_statistics(network: nn.Module) -> None:
    """Reset the statistics of torch's batch norms; other layers keep theirs."""
    for part in network.modules():
        if isinstance(part, _NormBase):
            part.reset_running_stats()


def _copy_of(model: nn.Module, supernet: Supernet) -> nn.Module:
    """Return the model with the supernet's full-width weights and initial batch-norm statistics."""
    network = copy.deepcopy(model)
    tensors = dict(supernet.network.named_parameters()) | dict(supernet.network.named_buffers())
    with torch.no_grad():
        for name, tensor in (*network.named_parameters(), *network.named_buffers()):
            if name in tensors:
                tensor.copy_(tensors[name])
    _reset_statistics(network)
    return network


def narrow_in_place(network: nn.Module, space: WidthSpace, widths: Sequence[int], side: Side) -> nn.Module:
    """Slice the network permanently, in place: new contiguous tensors, and layer attributes set to match."""
    narrowing = Narrowing(network, space.layouts, space.numbers)
    old = tensors_of(network)
    new: dict[int, torch.Tensor] = {}
    for name, tensor in old.items():
        if name in space.layouts and id(tensor) not in new:
            runs = [spans(layout, widths, side) for layout in space.layouts[name]]
            part_of = take(tensor.detach(), runs).clone(memory_format=torch.contiguous_format)
            is_parameter = isinstance(tensor, nn.Parameter)
            new[id(tensor)] = nn.Parameter(part_of, tensor.requires_grad) if is_parameter else part_of
    for part in network.modules():
        tables: tuple[dict[str, Any], ...] = (part._parameters, part._buffers)
        for table in tables:
            table.update({key: new[id(tensor)] for key, tensor in table.items() if id(tensor) in new})
    narrowing.fix_numbers(widths)
    return network
