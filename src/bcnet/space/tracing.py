"""Tracing: from a model to its width space.

The model is exported in both modes, labels are propagated through both graphs, what they tie becomes the width groups,
and the result is tried out: narrow paths are run in both modes, and whatever group breaks the model's own code is held
at full width with the error it gave.
"""

from __future__ import annotations

import copy
import warnings

import torch
from torch import nn
from torch.export import ExportedProgram

from bcnet.errors import TraceError
from bcnet.space.narrowing import tensors_of
from bcnet.space.propagation import Propagation
from bcnet.space.solution import Solution
from bcnet.space.space import WidthSpace
from bcnet.space.trial import breaking_groups


def trace(
    model: nn.Module, example_input: torch.Tensor, *, num_choices: int, min_ratio: float, multiple_of: int
) -> WidthSpace:
    """`WidthSpace.trace`, with its arguments."""
    model, example = _prepared(model, example_input)
    propagation = Propagation(tensors_of(model))
    for training in (True, False):
        propagation.run(_export(model.train(training), example), count_macs=not training)

    def solved() -> Solution:
        return Solution(propagation, num_choices=num_choices, min_ratio=min_ratio, multiple_of=multiple_of)

    parameters = {name for name, _ in model.named_parameters()}
    solution = solved()
    space = solution.space(parameters, batch=len(example))
    broken = breaking_groups(model, example, space)
    if broken:
        for group, reason in broken.items():
            propagation.fix(solution.dims[group], reason)
        space = solved().space(parameters, batch=len(example))
    return space


def _prepared(model: nn.Module, example: torch.Tensor) -> tuple[nn.Module, torch.Tensor]:
    if not isinstance(model, nn.Module):
        raise TraceError(f"trace needs a torch.nn.Module; got {type(model).__name__}: pass the network itself")
    if not isinstance(example, torch.Tensor) or example.ndim < 2:
        got = tuple(example.shape) if isinstance(example, torch.Tensor) else type(example).__name__
        raise TraceError(f"the example input is a tensor (batch, channels, ...); got {got}")
    if len(example) == 1:  # export would take a batch of one for a constant
        example = torch.cat([example, example])
    return copy.deepcopy(model), example.detach()


def _export(model: nn.Module, example: torch.Tensor) -> ExportedProgram:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(model, (example,), strict=False)
    except Exception as error:
        raise TraceError(
            f"{type(model).__name__} must run on the example input, shape {tuple(example.shape)}, and export by "
            f"torch.export; {_what_failed(model, example, error)}"
        ) from error


def _what_failed(model: nn.Module, example: torch.Tensor, export_error: Exception) -> str:
    try:
        with torch.no_grad():
            model(example)
    except Exception as error:
        return f"running it failed: {first_line(error)}: check the shape (batch, channels, height, width)"
    return f"it runs, but the export failed: {first_line(export_error)}"


def first_line(error: BaseException) -> str:
    """Type and first line of an error."""
    return f"{type(error).__name__}: {next((line for line in str(error).splitlines() if line.strip()), '')}"
