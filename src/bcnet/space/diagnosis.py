"""Explain why a network cannot be copied or exported, naming the module and a remedy.

A hook that is a lambda or an inner function stores features where it was defined. A deep copy of the network shares the
function, so the copy's features are stored in the original. Bound methods are copied with their network.
"""

from __future__ import annotations

import copy
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.jit import ScriptModule
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.weight_norm import WeightNorm

from bcnet.errors import TraceError, first_line


def lazy_layer(model: nn.Module) -> str | None:
    """Return the name of a layer that gets its weights in the first forward pass, or None."""
    return next(
        (
            name
            for name, part in model.named_modules()
            if isinstance(part, LazyModuleMixin) and part.has_uninitialized_params()  # type: ignore[misc]
        ),
        None,
    )


def why_no_copy(model: nn.Module, error: Exception) -> str:
    """Explain why `copy.deepcopy(model)` fails, and what to do."""
    for name, part in model.named_modules():
        where = name or type(model).__name__
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, BasePruningMethod):
                return (
                    f"{where} is masked by torch.nn.utils.prune, which computes its {hook._tensor_name}: call "
                    f"torch.nn.utils.prune.remove(module, {hook._tensor_name!r}) before"
                )
            if isinstance(hook, WeightNorm):
                return (
                    f"{where} computes its {hook.name} by torch.nn.utils.weight_norm: take "
                    "torch.nn.utils.parametrizations.weight_norm, its successor"
                )
    held = next(_cannot_be_copied(model), None)
    if held is None:
        return f"copying {type(model).__name__} failed with {first_line(error)}"
    return (
        f"{held} cannot be copied ({first_line(error)}): keep it outside of the network, or give its class a "
        "__deepcopy__"
    )


def _cannot_be_copied(model: nn.Module) -> Iterator[str]:
    """Iterate over the attributes of modules that cannot be copied."""
    for prefix, part in model.named_modules():
        for table in (vars(part), part._parameters, part._buffers):
            for name, value in table.items():
                if name in ("_modules", "_parameters", "_buffers"):
                    continue
                try:
                    copy.deepcopy(value)
                except Exception:
                    where = f"{prefix}." if prefix else ""
                    yield f"{where}{name}, a {type(value).__name__} of {type(part).__name__},"


def why_no_export(model: nn.Module, error: Exception) -> str:
    """Explain why `torch.export.export(model)` fails although the model runs, and what to do."""
    scripted = next((name for name, part in model.named_modules() if isinstance(part, ScriptModule)), None)
    if scripted is not None:
        return f"{scripted or 'it'} is a scripted module, whose code is hidden: pass the module before torch.jit.script"
    text = str(error)
    place = _place(error)
    if "fake tensor in the exported program constant" in text:
        return (
            f"its forward writes into a weight or an attribute{place}: compute the weight anew in forward (weight * "
            "mask) and leave what the module holds unchanged"
        )
    if isinstance(error, GuardOnDataDependentSymNode) or "data-dependent" in text:
        return (
            f"its forward decides by the values of a tensor{place}: decide by shapes or by self.training, or leave the "
            "decision to the code that calls the network"
        )
    return f"the export failed: {first_line(error)}{place}"


def _place(error: BaseException) -> str:
    """Return the last line of the model's own code that an error passed through; "" if there is none."""
    seen = [error]
    while (cause := seen[-1].__cause__ or seen[-1].__context__) is not None and cause not in seen:
        seen.append(cause)
    frames = [
        f for one in seen for f in traceback.extract_tb(one.__traceback__) if f.line and not is_foreign(f.filename)
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno}: `{frames[-1].line}`)" if frames else ""


_LIBRARY = os.path.dirname(os.path.dirname(__file__))


def is_foreign(file: str) -> bool:
    """Return whether a file belongs to Python, torch or this library, not to the model."""
    python = file.startswith(os.path.dirname(os.__file__)) and "site-packages" not in file
    return python or "/torch/" in file or file.startswith(_LIBRARY)


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
        # The memo of `deepcopy` replaces each store by an empty one: a hook that still writes to the old one leaves
        # it empty.
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
