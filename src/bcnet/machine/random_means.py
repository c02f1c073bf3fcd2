"""Replace random numbers with their means, so that two calls of a network can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_DROPOUTS = frozenset(
    {
        *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
        *(torch.dropout, torch.feature_dropout, torch.alpha_dropout, torch.feature_alpha_dropout),
    }
)
_LIKE = {torch.randn_like: 0.0, torch.rand_like: 0.5}
_OF_SHAPE = {torch.randn: 0.0, torch.rand: 0.5}
_IN_PLACE = {torch.Tensor.normal_: ("mean", 0.0), torch.Tensor.bernoulli_: ("p", 0.5)}


@contextmanager
def means_of_random() -> Iterator[None]:
    """Disable dropout in the block, in eval mode too, and let random tensors hold the means of their distributions.

    Other draws come from a fixed seed. The CPU generator is restored afterwards.
    """
    with torch.random.fork_rng(devices=[]), _Means():
        torch.manual_seed(0)
        yield


class _Means(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        # Dropout scales what it keeps, so its mean is its input; a Bernoulli mask's mean is its probability.
        options = dict(kwargs or {})
        if func in _DROPOUTS:
            return args[0] if args else options["input"]
        if func in _LIKE:
            return torch.full_like(args[0] if args else options.pop("input"), _LIKE[func], **options)
        if func in _OF_SHAPE:
            options.pop("generator", None)
            size = options.pop("size", args[0] if args and not isinstance(args[0], int) else args)
            return torch.full(size, _OF_SHAPE[func], **options)
        if func is torch.bernoulli:
            return args[0].clone()
        if func in _IN_PLACE:
            name, usual = _IN_PLACE[func]
            return args[0].fill_(args[1] if len(args) > 1 else options.get(name, usual))
        return func(*args, **options)
