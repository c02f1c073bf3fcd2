"""Removal of `torch.compile` from networks: a compiled part has code for the widths it was compiled at."""

from __future__ import annotations

import copy
import sys
from typing import Any

from torch import nn


def undo_compile(model: nn.Module) -> nn.Module:
    """Return the uncompiled network; a copy if only parts of it are compiled."""
    model = _unwrap(model)
    if not isinstance(model, nn.Module) or not any(map(_is_compiled, model.modules())):
        return model
    plain = copy.deepcopy(model)  # leaves out the result of `module.compile()`
    for part in list(plain.modules()):
        for name, child in part._modules.items():
            part._modules[name] = _unwrap(child)
    return plain


def _unwrap(module: Any) -> Any:
    while _is_wrapper(module):
        module = module._orig_mod
    return module


def _is_compiled(part: nn.Module) -> bool:
    return _is_wrapper(part) or part._compiled_call_impl is not None


def _is_wrapper(module: Any) -> bool:
    # Importing torch._dynamo takes seconds; if it is not imported, nothing is compiled.
    dynamo = sys.modules.get("torch._dynamo")
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)
