"""Detection of functions in a network that refer to it: a copy of the network would still call the original.

A hook that is a lambda or an inner function stores features where it was defined. A deep copy of the network shares the
function, so the copy's features are stored in the original. Bound methods are copied with their network.

"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import nn

from bcnet.errors import TraceError

_HOOK = "a hook"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def check_closures(model: nn.Module, run: Callable[[nn.Module], object]) -> None:
    """Raise TraceError if the network computes with a function that refers to it or to a part of it.

    A hook that only observes is accepted: `run`, a call of a copy, works without the values it stores.
    """
    owned = set(_owned_ids(model))
    for prefix, part in model.named_modules():
        for what, function in _functions(part):
            held = [value for value in _captured_values(function) if id(value) in owned]
            if held and not (what == _HOOK and _works_without(model, held, run)):
                code = function.__code__
                raise TraceError(
                    f"a network is copied before it is traced, and functions in it must not refer to the original; "
                    f"{what} of {prefix or type(model).__name__} is {function.__qualname__} ({code.co_filename}, line "
                    f"{code.co_firstlineno}), which does: make it a method of the network (self.keep), which is copied "
                    "with it"
                )


def _works_without(model: nn.Module, held: Sequence[Any], run: Callable[[nn.Module], object]) -> bool:
    """Return whether a copy runs with empty lists and dicts in place of those that a hook writes to."""
    kept = {id(value) for value in held}
    stores = [
        value
        for part in model.modules()
        for name, value in vars(part).items()
        if not name.startswith("_") and isinstance(value, (list, dict, set)) and (id(part) in kept or id(value) in kept)
    ]
    try:
        copied = copy.deepcopy(model, {id(store): type(store)() for store in stores})
        for part in copied.modules():
            for table in _HOOKS:
                for number, hook in list(vars(part)[table].items()):
                    if isinstance(hook, FunctionType):
                        del vars(part)[table][number]
        with torch.no_grad():
            run(copied.eval())
    except Exception:
        return False
    return True


def _owned_ids(model: nn.Module) -> Iterator[int]:
    """Return the ids of a network's modules and tensors, and of their attributes' values."""
    for part in model.modules():
        yield id(part)
        for table in (part._parameters, part._buffers):
            yield from (id(tensor) for tensor in table.values() if tensor is not None)
        for name, value in vars(part).items():
            if not name.startswith("_") and isinstance(value, (list, dict, set)):
                yield id(value)


def _functions(part: nn.Module) -> Iterator[tuple[str, FunctionType]]:
    for table in _HOOKS:
        yield from ((_HOOK, hook) for hook in vars(part)[table].values() if isinstance(hook, FunctionType))
    for name, value in vars(part).items():
        if isinstance(value, FunctionType):
            yield f"the attribute {name}", value


def _captured_values(function: FunctionType) -> Iterator[Any]:
    """Return the values in a function's cells and defaults, and the items of lists and dicts among them."""
    cells = (cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell))
    for value in (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield value
        if isinstance(value, Mapping):
            yield from value.values()
        elif isinstance(value, (list, tuple)):
            yield from value
        elif isinstance(value, FunctionType) and value is not function:
            yield from _captured_values(value)


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False
