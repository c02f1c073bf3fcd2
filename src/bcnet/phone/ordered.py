"""Inputs in the order in which they are given: files of these engines hold no names."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import torch
from torch import nn

from bcnet.errors import ExportError
from bcnet.nests import Nest, arguments


class _Ordered(nn.Module):
    def __init__(self, network: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self.names = names

    def forward(self, *values: torch.Tensor) -> Any:
        return self.network(**dict(zip(self.names, values, strict=True)))


def in_order(network: nn.Module, inputs: Nest) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the network and its inputs as positional arguments."""
    args, kwargs = arguments(inputs)
    return (_Ordered(network, tuple(kwargs)), tuple(kwargs.values())) if kwargs else (network, args)


def import_engine(module: str, runtime: str, extra: str) -> ModuleType:
    """Return a package of an engine.

    Raises:
        ExportError: it is not installed, or does not import.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:  # a build that does not match torch's raises more than ImportError
        raise ExportError(
            f"{runtime} needs packages of its own; importing {module} failed with {type(error).__name__}: {error}: run "
            f"`pip install 'bcnet[{extra}]'`"
        ) from error
