"""The rival of slices: a supernet that runs every path at full width and sets what is not in it to zero.

With the mask `m(c, side)` of a path, 1 for the channels of a group that it keeps and 0 for the others, a layer's output
`y` becomes `m * y`. The next layer multiplies with zeros what a slice leaves out, so that outputs and gradients are
those of the path, and every path costs what the full network costs. Two ways:

- of feature maps, after each batch norm, as such supernets are usually written;
- of the norm's scale and shift, two vectors: `m * (a x + b) = (m * a) x + m * b`, the least that masking can cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from bcnet.space import WidthSpace
from bcnet.space.layout import spans
from bcnet.supernet.supernet import without_running_statistics
from bcnet.train import Strategy
from bcnet.train.learner import Learner
from bcnet.train.step import Pass, Path, Term

Way = Literal["feature maps", "scale and shift"]


class MaskedTrainee(Learner):
    """Paths of `network`, changed in place, as masked passes; a batch norm follows each searched convolution."""

    def __init__(self, network: nn.Module, space: WidthSpace, strategy: Strategy, way: Way) -> None:
        self.module = without_running_statistics(network)
        self.num_groups = len(space.groups)
        self._space = space
        self._strategy = strategy
        self._way = way
        self._norms = [
            (norm, space.layouts[f"{name}.weight"][0])
            for name, norm in network.named_modules()
            if isinstance(norm, _BatchNorm) and f"{name}.weight" in space.layouts
        ]

    def plan(self, generator: torch.Generator) -> tuple[Term, ...]:
        """What the strategy plans."""
        return self._strategy.plan(self._space, generator)

    def forward(self, x: torch.Tensor, paths: Pass) -> tuple[torch.Tensor, ...]:
        """A full-width pass that gives one path's logits."""
        (path,) = paths
        with self._masked(path):
            return (self.module(x),)

    @contextmanager
    def _masked(self, path: Path) -> Iterator[None]:
        own = [dict(norm._parameters) for norm, _ in self._norms]
        hooks = []
        try:
            for norm, layout in self._norms:
                mask = torch.zeros(norm.num_features, device=norm.weight.device)
                for start, length in spans(layout, path.widths, path.side):
                    mask[start : start + length] = 1
                if self._way == "feature maps":
                    hooks.append(norm.register_forward_hook(_times(mask.view(1, -1, 1, 1))))
                else:
                    for key in ("weight", "bias"):
                        norm._parameters[key] = norm._parameters[key] * mask  # type: ignore[assignment, operator]
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for (norm, _), parameters in zip(self._norms, own, strict=True):
                norm._parameters.update(parameters)


def _times(mask: torch.Tensor) -> Any:
    def hook(norm: nn.Module, given: object, output: torch.Tensor) -> torch.Tensor:
        return output * mask.to(output.dtype)

    return hook
