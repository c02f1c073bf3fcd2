"""Networks without `torch.compile`: a compiled part has code for the widths that it was compiled at."""

from __future__ import annotations

import copy
import sys
from typing import Any

from torch import nn


def undo_compile(model: nn.Module) -> nn.Module:
    """The network itself where nothing of it is compiled, else as it was before; a copy where a part was compiled."""
    model = _unwrap(model)
    if not isinstance(model, nn.Module) or not any(map(_is_compiled, model.modules())):
        return model
    plain = copy.deepcopy(model)  # which leaves out what `module.compile()` has made
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
    # Importing torch._dynamo takes seconds; where nobody has, nothing is compiled.
    dynamo = sys.modules.get("torch._dynamo")
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)
