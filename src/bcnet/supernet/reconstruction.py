"""Reconstruction: weights with which a narrow network computes what the original does, layer by layer.

Notation: `x` are the inputs of a layer in the narrow network, with a 1 for its bias. `y` are the outputs of the same
layer in the original at the kept channels. `w` are the weights after slicing. In the order of the forward pass, every
convolution and linear layer gets

    argmin_v  sum |v x - y|^2 + ridge s |v - w|^2        (He et al., "Channel Pruning", 2017, section 3.2)

with sums over positions sampled from all inputs, and `s` the mean of `sum x^2` over the entries of `x`. Each layer is
solved after all layers before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bcnet.errors import DataError
from bcnet.pytree import Pytree, call_model
from bcnet.space import Side, WidthSpace
from bcnet.space.layout import spans
from bcnet.supernet.calibration import run_batch

_RIDGE = 1e-3
_LEAST_ROWS = 4096  # positions of a layer, over all inputs
_ROWS_PER_COLUMN = 8
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)


@torch.no_grad()
def reconstruct(
    network: nn.Module, original: nn.Module, space: WidthSpace, widths: Sequence[int], batches: Sequence[Pytree]
) -> nn.Module:
    """Fit the weights of `network` so that its layers' outputs match those of `original`; return it in its mode.

    Args:
        network: the first channels of `original` at `widths` (`narrow_in_place`, side left).
        original: the full-width network with sorted channels.
        space: the width space of both.
        widths: one per group.
        batches: network inputs `(batch, ...)`, some hundred in total. Both networks run on them once per layer.

    These layers are unchanged: convolutions in groups, in three dimensions or with padding other than zeros, layers
    called more than once or without a batch, and subclasses of torch's layers.

    Raises:
        DataError: no batch was given, or one that the network cannot take.
    """
    if not batches:
        raise DataError("weights are restored from network inputs; got no batch: give some")
    modes = {part: part.training for part in (*network.modules(), *original.modules())}
    network.eval()
    original.eval()
    for number, batch in enumerate(batches):
        run_batch(original, batch, number)
    generator = torch.Generator().manual_seed(0)
    for name in _layers_in_order(network, batches[0]):
        layer: Any = network.get_submodule(name)
        layout = space.layouts.get(f"{name}.weight")  # None if all of the layer's channels are pinned
        runs = spans(layout[0], widths, Side.LEFT) if layout else [(0, len(layer.weight))]
        kept = torch.cat([torch.arange(start, start + length) for start, length in runs])
        columns = layer.weight[0].numel() + (layer.bias is not None)
        share = max(_LEAST_ROWS, _ROWS_PER_COLUMN * columns) // len(batches)
        products = torch.zeros(columns, columns, dtype=torch.float64)
        targets = torch.zeros(columns, len(kept), dtype=torch.float64)
        for batch in batches:
            x = _rows_of(layer, _run_to(network, name, batch)[0])
            y = _run_to(original, name, batch)[1]
            y = (y if isinstance(layer, nn.Linear) else y.movedim(1, -1)).flatten(0, -2)[:, kept.to(y.device)]
            chosen = torch.randperm(len(x), generator=generator)[:share].to(x.device)
            x, y = x[chosen].cpu().double(), y[chosen].cpu().double()
            products += x.T @ x
            targets += x.T @ y
        _set_weights(layer, products, targets)
    for part, mode in modes.items():
        part.training = mode
    return network


def _layers_in_order(network: nn.Module, batch: Pytree) -> list[str]:
    """Return the names of the layers that can be solved, in the order of their calls."""
    called: list[str] = []
    unread: set[str] = set()
    owners = [id(tensor) for part in network.modules() for tensor in part.parameters(recurse=False)]

    def note(name: str, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        called.append(name)
        if not inputs or inputs[0].ndim < layer.weight.ndim:  # called by keyword, or with an input without batch
            unread.add(name)

    handles = [
        layer.register_forward_pre_hook(partial(note, name))
        for name, layer in network.named_modules()
        if _is_plain(layer) and owners.count(id(layer.weight)) == 1
    ]
    try:
        call_model(network, batch)
    finally:
        for handle in handles:
            handle.remove()
    return [name for name in called if called.count(name) == 1 and name not in unread]


def _is_plain(layer: nn.Module) -> bool:
    if type(layer) not in _LAYERS or "weight" not in dict(layer.named_parameters(recurse=False)):
        return False
    return not isinstance(layer, (nn.Conv1d, nn.Conv2d)) or (layer.groups == 1 and layer.padding_mode == "zeros")


class _Reached(Exception):  # noqa: N818 - the rest of the forward pass is not needed
    pass


def _run_to(network: nn.Module, name: str, batch: Pytree) -> tuple[Tensor, Tensor]:
    """Return the inputs and outputs of a layer for a batch, skipping the layers after it."""
    found: list[tuple[Tensor, Tensor]] = []

    def look(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        found.append((inputs[0], output))
        raise _Reached

    with network.get_submodule(name).register_forward_hook(look), suppress(_Reached):
        call_model(network, batch)
    return found[0]


def _rows_of(layer: nn.Module, x: Tensor) -> Tensor:
    """Return a layer's inputs, `(positions, columns)`, in the order of its flat weight, with 1 for the bias."""
    if isinstance(layer, nn.Linear):
        rows = x.flatten(0, -2)
    else:
        assert isinstance(layer, (nn.Conv1d, nn.Conv2d))
        flat = isinstance(layer, nn.Conv1d)
        x = F.pad(x, layer._reversed_padding_repeated_twice)
        sizes = [(1, *pair) if flat else pair for pair in (layer.kernel_size, layer.dilation, layer.stride)]
        patches = F.unfold(x.unsqueeze(2) if flat else x, sizes[0], sizes[1], 0, sizes[2])  # (batch, columns, places)
        rows = patches.transpose(1, 2).flatten(0, 1)
    return rows if layer.bias is None else torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def _set_weights(layer: Any, products: Tensor, targets: Tensor) -> None:
    """Solve `(X'X + ridge) (v - w) = X'y - X'X w`; keep `w` if there is no solution."""
    w = layer.weight.flatten(1).double().cpu()
    if layer.bias is not None:
        w = torch.cat([w, layer.bias.double().cpu()[:, None]], dim=1)
    eye = torch.eye(len(products), dtype=torch.float64)
    factor, failed = torch.linalg.cholesky_ex(products + _RIDGE * products.diagonal().mean() * eye)
    if failed:
        return
    v = w + torch.cholesky_solve(targets - products @ w.T, factor).T
    if layer.bias is not None:
        v, bias = v[:, :-1], v[:, -1]
        layer.bias.copy_(bias)
    layer.weight.copy_(v.reshape(layer.weight.shape))
