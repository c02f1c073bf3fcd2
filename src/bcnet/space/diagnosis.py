"""Explain why a network cannot be copied or exported, naming the module and a remedy."""

from __future__ import annotations

import copy
import os
import traceback
from collections.abc import Iterator

from torch import nn
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.jit import ScriptModule
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.weight_norm import WeightNorm

from bcnet.errors import first_line


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
