"""A device to run on where there is no GPU: it computes shapes and no values, and every wait of the host is counted.

It is torch's `meta`. The rules are those of a GPU, where torch's own for `meta` are laxer: an operator takes tensors of
one device, but for single numbers of the host's; a copy from the host waits unless it is made non-blocking from pinned
memory. Operators whose result is as long as values say (`nonzero`, a mask as index), or is a value (`equal`), do not
exist there and raise. A value that is asked for is 1.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import bcnet

DEVICE = torch.device("meta")
_OURS = str(Path(bcnet.__file__).parent)
_CARRIERS = ("pytree.py", "data/transfer.py")  # they wait for whoever calls them
_FROM_NUMBERS = (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)


@contextmanager
def stand_in() -> Iterator[list[str]]:
    """A block in which `DEVICE` is there; the value grows by each wait for it, `file of the package: operator`."""
    waits: list[str] = []
    with _Numbers(waits), _Operators(waits):
        yield waits


def outside(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, run as if there was no such block around it: `torch.export` minds the block."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return function(*args, **kwargs)

    return run


def _waiting(operator: str) -> str:
    stack = [Path(frame.filename) for frame in traceback.extract_stack() if frame.filename.startswith(_OURS)]
    files = [file.relative_to(_OURS).as_posix() for file in stack]
    waiting = [file for file in files if file not in _CARRIERS]
    return f"{waiting[-1] if waiting else 'elsewhere'}: {operator}"


class _Operators(TorchDispatchMode):
    """Sees every operator, those of a backward pass too."""

    def __init__(self, waits: list[str]) -> None:
        super().__init__()
        self._waits = waits
        self._pinned: dict[int, torch.Tensor] = {}  # by address, which nothing else gets as long as they are here

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with self, torch._C.DisableTorchFunction():  # in inference mode operators arrive that are made of others
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        name = func.overloadpacket.__name__
        if name == "is_pinned":
            return False
        if name == "_pin_memory":
            pinned = args[0].clone()
            self._pinned[pinned.data_ptr()] = pinned
            return pinned
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        there = any(tensor.device == DEVICE for tensor in tensors)
        if there and name == "_local_scalar_dense":
            self._waits.append(_waiting(name))
            return torch.ones((), dtype=args[0].dtype).item()
        if there and name == "_to_copy" and kwargs.get("device", DEVICE) != DEVICE:
            self._waits.append(_waiting(name))
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if not there and name == "_to_copy" and kwargs.get("device") == DEVICE:
            self._arrive(name, args[0], kwargs.get("non_blocking", False))
        elif there and name == "copy_" and not all(tensor.device == DEVICE for tensor in tensors):
            self._arrive(name, args[1], len(args) > 2 and args[2])
        elif there and any(tensor.device != DEVICE and tensor.ndim for tensor in tensors):
            raise AssertionError(f"{name} takes tensors of one device; got {[str(t.device) for t in tensors]}")
        return func(*args, **kwargs)

    def _arrive(self, name: str, source: torch.Tensor, non_blocking: bool) -> None:
        if not (non_blocking and source.data_ptr() in self._pinned):
            self._waits.append(_waiting(name))


class _Numbers(TorchFunctionMode):
    """Sees tensors that are made of numbers: the host makes them, and copies them to a GPU."""

    def __init__(self, waits: list[str]) -> None:
        super().__init__()
        self._waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in _FROM_NUMBERS and made.device == DEVICE and made is not args[0]:
            self._waits.append(_waiting(func.__name__))
        return made
