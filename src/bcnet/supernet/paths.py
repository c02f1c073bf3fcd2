"""Paths: the slices of the supernet's parameters that one candidate uses on one side.

A slice is a view where the kept channels are neighbours (always, but for concatenated inputs). Autograd would answer it
with a zero-padded gradient of the full size for each path; `PathSlice` adds the slice's gradient to the parameter's
own `.grad` instead, so that paths cost what they compute, and overlapping paths accumulate.
"""

from __future__ import annotations

from typing import Any

import torch

from bcnet.space.narrowing import take

Runs = list[list[tuple[int, int]]]  # kept (start, length) runs of every dimension


class PathSlice(torch.autograd.Function):
    """`take(parameter, runs)`, with the gradient accumulated in place into `parameter.grad`."""

    @staticmethod
    def forward(ctx: Any, parameter: torch.Tensor, runs: Runs) -> torch.Tensor:
        """The path's part of the parameter; a view where every dimension has one run."""
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


def path_slice(name: str, tensor: torch.Tensor, runs: Runs) -> torch.Tensor:
    """A path's part of one parameter or buffer."""
    if tensor.requires_grad and torch.is_grad_enabled():
        sliced: torch.Tensor = PathSlice.apply(tensor, runs)  # type: ignore[no-untyped-call]
        return sliced
    return take(tensor, runs)


def _add(full: torch.Tensor, runs: Runs, part: torch.Tensor) -> None:
    """`full[runs] += part`, run by run."""
    for d, dim_runs in enumerate(runs):
        if len(dim_runs) > 1:
            pieces = torch.split(part, [size for _, size in dim_runs], dim=d)
            for run, piece in zip(dim_runs, pieces, strict=True):
                _add(full, [*runs[:d], [run], *runs[d + 1 :]], piece)
            return
    take(full, runs).add_(part)
