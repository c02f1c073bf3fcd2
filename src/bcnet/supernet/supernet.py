"""The bilaterally coupled supernet: one set of full-width weights that all paths share (Eq. 5-9).

A path consists of widths and a side. LEFT keeps the channels `[0, c)` of every group, RIGHT keeps `[l - c, l)`. Over
all widths `1..l` every channel is therefore on `l + 1` paths.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from bcnet.errors import WidthError
from bcnet.machine.onednn import UnitStrides
from bcnet.pytree import call_model
from bcnet.space import Side, WidthSpace
from bcnet.space.compiled import undo_compile
from bcnet.space.narrowing import Narrowing, take, tensors_of

_Runs = list[list[tuple[int, int]]]  # kept (start, length) runs of every dimension


class Supernet(nn.Module):
    """A copy of `model` that runs at any widths of `space`, on either side, with the model's own `forward`.

    Batch norm uses the statistics of the current batch on every path, in train and eval mode: the copy has no running
    statistics. Gradients of several paths accumulate directly in the full parameters' `.grad`, so `torch.autograd.grad`
    with respect to the parameters is not available.

    Args:
        model: the network `space` was traced from, or one of equal shapes; it is not changed. For a widened space, use
            `bcnet.build(model, space, space.full)`.
        space: its width space.

    Raises:
        WidthError: the model's tensors do not have the shapes of the space.
    """

    def __init__(self, model: nn.Module, space: WidthSpace) -> None:
        super().__init__()
        model = undo_compile(model)
        check_fits(model, space)
        self.space = space
        self.network = without_running_statistics(copy.deepcopy(model))
        self._own_norms = [
            part for part in self.network.modules() if isinstance(part, _NormBase) and needs_statistics(part)
        ]
        self._narrowing = Narrowing(self.network, space.layouts, space.numbers)
        self._strides = UnitStrides(self.network)
        self.train(self.training)

    def train(self, mode: bool = True) -> Supernet:
        """Set the mode; batch norms that require their running statistics stay in training mode."""
        super().train(mode)
        for norm in self._own_norms:
            norm.training = True
        return self

    def forward(self, x: Any, widths: Sequence[int], side: Side = Side.LEFT) -> Any:
        """Return the output at `widths` on `side` for the input `x`, usually `(batch, channels, height, width)`.

        A tuple `x` holds all positional arguments of the model's `forward`, a dict all keyword arguments. `widths` can
        be any multiples of the groups' units up to full width, not only choices.

        Raises:
            WidthError: the widths do not fit the space, or `side` is not a `Side`.
        """
        with self.at(widths, side) as network:
            return call_model(network, x)

    @contextmanager
    def at(self, widths: Sequence[int], side: Side = Side.LEFT) -> Iterator[nn.Module]:
        """Yield the copy of the model, restricted to a path within the block, for calls of any form.

        Losses computed in the block can be backpropagated after it.

        Raises:
            WidthError: as for `forward`.

        Example: `with supernet.at(widths) as network: loss = criterion(network(images, mask=masks), targets)`
        """
        self.space.check(widths)
        if not isinstance(side, Side):
            raise WidthError(f"a side must be Side.LEFT or Side.RIGHT; got {side!r}")
        with self._narrowing.apply(widths, side, _path_slice), self._strides.apply():
            yield self.network


class _PathSlice(torch.autograd.Function):
    """`take(parameter, runs)`, with the gradient accumulated in place into `parameter.grad`.

    The slice is a view if the kept channels are contiguous (always, except for concatenated inputs). Autograd would
    allocate a zero-padded gradient of full size for each path. Adding the slice's gradient to the parameter's own makes
    the cost of a path proportional to its size, and lets overlapping paths accumulate.
    """

    @staticmethod
    def forward(ctx: Any, parameter: torch.Tensor, runs: _Runs) -> torch.Tensor:
        """Return the path's part of the parameter; a view if every dimension has one run."""
        ctx.parameter = parameter
        ctx.runs = runs
        return take(parameter, runs)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, None]:
        """Add the slice's gradient to the parameter's own."""
        parameter = ctx.parameter
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        _add(parameter.grad, ctx.runs, gradient)
        return None, None


def _path_slice(name: str, tensor: torch.Tensor, runs: _Runs) -> torch.Tensor:
    """Return a path's part of one parameter or buffer."""
    if tensor.requires_grad and torch.is_grad_enabled():
        sliced: torch.Tensor = _PathSlice.apply(tensor, runs)  # type: ignore[no-untyped-call]
        return sliced
    return take(tensor, runs)


def _add(full: torch.Tensor, runs: _Runs, part: torch.Tensor) -> None:
    """Compute `full[runs] += part`, run by run."""
    for d, dim_runs in enumerate(runs):
        if len(dim_runs) > 1:
            pieces = torch.split(part, [size for _, size in dim_runs], dim=d)
            for run, piece in zip(dim_runs, pieces, strict=True):
                _add(full, [*runs[:d], [run], *runs[d + 1 :]], piece)
            return
    take(full, runs).add_(part)


def needs_statistics(norm: _NormBase) -> bool:
    """Return whether the `forward` of a normalisation fails without running statistics.

    torch's own layers use the batch's statistics instead; a user's layer may rely on the buffers.
    """
    if type(norm).forward.__module__.startswith("torch.nn."):
        return False
    trial = copy.deepcopy(norm).eval()
    weight = next(trial.parameters(), torch.empty(0))
    for spatial in ((2, 2), (2,), (2, 2, 2), ()):
        x = torch.ones(2, norm.num_features, *spatial, dtype=weight.dtype, device=weight.device)
        if _runs(trial, x):
            return not _runs(_without_statistics(trial), x)
    return True


@torch.no_grad()
def _runs(norm: nn.Module, x: torch.Tensor) -> bool:
    try:
        norm(x)
    except Exception:  # the user's code can raise anything
        return False
    return True


def _without_statistics(norm: _NormBase) -> _NormBase:
    norm.track_running_stats = False
    norm.running_mean = norm.running_var = norm.num_batches_tracked = None
    return norm


def without_running_statistics(model: nn.Module) -> nn.Module:
    """Make normalisations use the statistics of the current batch in both modes; change and return `model`.

    Layers for which `needs_statistics` holds keep theirs.
    """
    for part in model.modules():
        if isinstance(part, _NormBase) and part.track_running_stats and not needs_statistics(part):
            _without_statistics(part)
    return model


def fits(model: nn.Module, space: WidthSpace) -> bool:
    """Return whether the model's tensors have the shapes of the space."""
    return next(_misfits(model, space), None) is None


def check_fits(model: nn.Module, space: WidthSpace) -> None:
    """Raise WidthError if the model's tensors do not have the shapes that the space was traced with."""
    for name, expected, got in _misfits(model, space):
        raise WidthError(
            f"the model must be the one the space was traced from: {name!r} has shape {expected} in the space; "
            f"got {got or 'no such tensor'}: trace this model, or build the widened one"
        )


def _misfits(model: nn.Module, space: WidthSpace) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...] | None]]:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors_of(model).items()}
    for name, layout in space.layouts.items():
        expected = tuple(sum(segment.size for segment in dim) for dim in layout)
        if shapes.get(name) != expected:
            yield name, expected, shapes.get(name)
