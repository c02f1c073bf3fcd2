"""Weights to start from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from bcnet.errors import ModelError
from bcnet.run.digests import digest_of

Weights = Mapping[str, torch.Tensor] | str | Path


def load_pretrained(model: nn.Module, weights: Weights) -> tuple[str, str | None]:
    """Put weights into the model, in place: a state dict, or the path of a safetensors file.

    Tensors of another shape than the model's, of a last layer for other classes for instance, are left as they were.

    Returns:
        A digest of the weights, and a note about what was left out, or None.

    Raises:
        ModelError: a file that cannot be read, or weights of another network.
    """
    tensors = _read(weights)
    own = model.state_dict()
    rule = "pretrained weights are a state dict of this network"
    for name in tensors:
        if name not in own:
            raise ModelError(f"{rule}; {type(model).__name__} has no tensor {name!r}: take the file of this network")
    missing = sorted(name for name in own if name not in tensors and not name.endswith("num_batches_tracked"))
    if missing:
        raise ModelError(f"{rule}; there is none named {missing[0]!r}: take the file of this network")
    fitting = {name: tensor for name, tensor in tensors.items() if tensor.shape == own[name].shape}
    if 2 * len(fitting) < len(tensors):
        raise ModelError(f"{rule}; {len(tensors) - len(fitting)} of {len(tensors)} tensors have another shape")
    model.load_state_dict(own | fitting)
    others = [name for name in tensors if name not in fitting]
    note = f"pretrained weights of another shape are left out: {', '.join(others)}" if others else None
    return digest_of(tensors), note


def _read(weights: Weights) -> Mapping[str, torch.Tensor]:
    if isinstance(weights, Mapping):
        return weights
    try:
        return load_file(weights)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"pretrained weights are a state dict or a safetensors file; {weights} cannot be read: {error}: convert "
            "others with safetensors.torch.save_file(model.state_dict(), ...)"
        ) from None
