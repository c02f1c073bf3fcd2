"""Pretrained weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from bcnet.errors import ModelError
from bcnet.files.tensors import digest_of

Weights = Mapping[str, Any] | nn.Module | str | Path
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.")
_COUNTERS = ("total_ops", "total_params")  # added by thop


def load_pretrained(model: nn.Module, weights: Weights, *, whole: bool = False) -> tuple[str, str | None]:
    """Load weights into the model in place: a state dict, a module, or the path of a tensor file.

    Tensors of another shape than the model's, such as a last layer for other classes, are skipped unless the `whole`
    network is required.

    Returns:
        A digest of the weights, and a note on skipped tensors, or None.

    Raises:
        ModelError: the file cannot be read, the weights belong to another network, or tensors of a whole one are
            missing.
    """
    own = model.state_dict()
    tensors = _as_of(own, _read(weights))
    rule = "pretrained weights must be a state dict of this network"
    for name in tensors:
        if name not in own:
            raise ModelError(f"{rule}; {type(model).__name__} has no tensor {name!r}: take the file of this network")
    # Files of older versions of torch have no counters of batches; they do not affect inference.
    missing = sorted(name for name in own if name not in tensors and not name.endswith("num_batches_tracked"))
    if missing:
        raise ModelError(f"{rule}; there is none named {missing[0]!r}: take the file of this network")
    fitting = {name: tensor for name, tensor in tensors.items() if tensor.shape == own[name].shape}
    # A last layer for other classes is usual; if most shapes differ, it is another network.
    if 2 * len(fitting) < len(tensors):
        raise ModelError(f"{rule}; {len(tensors) - len(fitting)} of {len(tensors)} tensors have another shape")
    for name, tensor in fitting.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ModelError(
                f"pretrained weights must hold finite numbers in every tensor; got NaN or infinity in {name}: take "
                "others"
            )
    others = [name for name in tensors if name not in fitting]
    if whole and others:
        first = others[0]
        raise ModelError(
            f"what is imitated has all its weights; {first} has shape {tuple(tensors[first].shape)} in the file and "
            f"{tuple(own[first].shape)} in the network for these inputs: prepare inputs as in its training"
        )
    model.load_state_dict(own | fitting)
    note = f"pretrained weights of another shape are left out: {', '.join(others)}" if others else None
    return digest_of(tensors), note


def _as_of(own: Mapping[str, torch.Tensor], found: Mapping[str, Any]) -> Mapping[str, torch.Tensor]:
    """Return the tensors of a checkpoint under the network's names.

    Training checkpoints hold them in a nested dict. Wrappers (`DataParallel`, `torch.compile`, Lightning) prefix every
    name. FLOP counters leave counters behind.
    """
    # A checkpoint of a training holds the state dict beside the optimizer's and others.
    inner = [
        value for value in found.values() if isinstance(value, Mapping) and set(own) & set(_strip_prefixes(own, value))
    ]
    if not any(isinstance(value, torch.Tensor) for value in found.values()) and len(inner) == 1:
        return _as_of(own, inner[0])
    tensors = _strip_prefixes(own, found)
    counters = {name for name in tensors if name not in own and str(name).rpartition(".")[2] in _COUNTERS}
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise ModelError(f"pretrained weights must have names; got {name!r} for one: give model.state_dict()")
        if isinstance(value, torch.Tensor) and (value.layout is not torch.strided or value.is_quantized):
            kind = "quantised" if value.is_quantized else "sparse"
            raise ModelError(f"pretrained weights must be plain tensors; got a {kind} one for {name!r}: make it dense")
        if not isinstance(value, torch.Tensor):
            held = " and ".join(repr(key) for key, value in found.items() if isinstance(value, Mapping))
            raise ModelError(
                f"pretrained weights must be a state dict of tensors; got {type(value).__name__} for {name!r}"
                + (f": give one of its entries {held}" if held else ": give model.state_dict()")
            )
    return {name: tensor for name, tensor in tensors.items() if name not in counters}


def _strip_prefixes(own: Mapping[str, torch.Tensor], found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entries without wrappers' prefixes, if all names have them and the network's names do not."""
    for _ in range(len(_PREFIXES)):
        prefix = next((p for p in _PREFIXES if found and all(str(name).startswith(p) for name in found)), None)
        if prefix is None or any(name.startswith(prefix) for name in own):
            break
        found = {name.removeprefix(prefix): value for name, value in found.items()}
    return found


def _read(weights: Weights) -> Mapping[str, Any]:
    if isinstance(weights, nn.Module):
        return weights.state_dict()
    if isinstance(weights, Mapping):
        return weights
    if not Path(weights).is_file():
        raise ModelError(f"pretrained weights must be a file or a state dict; got {weights}, which is not there")
    if str(weights).endswith((".pth", ".pt", ".ckpt")):
        try:
            found = torch.load(weights, map_location="cpu", weights_only=True)
        except Exception as error:  # a pickle may hold anything; torch loads only tensors and plain values
            raise ModelError(
                f"pretrained weights must be tensors alone; {weights} cannot be read as such ({type(error).__name__}): "
                "load it where you trust it, and give its state dict"
            ) from error
        if not isinstance(found, Mapping):
            raise ModelError(f"pretrained weights must be a state dict; {weights} holds {type(found).__name__}")
        return found
    try:
        return load_file(weights)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"pretrained weights must be a state dict or a safetensors file; {weights} cannot be read: {error}: "
            "convert others with safetensors.torch.save_file(model.state_dict(), ...)"
        ) from None
