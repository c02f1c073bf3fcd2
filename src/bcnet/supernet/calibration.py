"""Batch-norm statistics for a network whose weights came without them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from bcnet.errors import DataError, last_line
from bcnet.pytree import Pytree, call_model
from bcnet.supernet.supernet import needs_statistics


class _MeanStatistics:
    """Mean statistics of a norm's inputs, for norms whose own `forward` may not support `momentum=None`."""

    def __init__(self, norm: _BatchNorm) -> None:
        self._norm = norm
        self._seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._hook = norm.register_forward_pre_hook(self._record_moments)

    def _record_moments(self, norm: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        values = inputs[0].transpose(0, 1).flatten(1)  # (channels, values)
        self._seen.append((values.mean(1), values.var(1)))

    def write(self) -> None:
        """Copy the means into the norm's running statistics."""
        self._hook.remove()
        if self._seen:
            means, variances = (torch.stack(column).mean(0) for column in zip(*self._seen, strict=True))
            self._norm.running_mean.copy_(means)  # type: ignore[union-attr]
            self._norm.running_var.copy_(variances)  # type: ignore[union-attr]


def run_batch(network: nn.Module, batch: Pytree, number: int) -> None:
    """Call the network.

    Raises:
        DataError: the network cannot take the batch, which the message names by its number and its shapes.
    """
    try:
        call_model(network, batch)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        given = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
        shapes = " and ".join(f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in given)
        raise DataError(
            f"batches must be inputs of the network, prepared as for training; it fails on batch {number} (from 0), "
            f"{shapes.replace('torch.', '')}: {last_line(error)}"
        ) from error


@torch.no_grad()
def recalibrate(network: nn.Module, batches: Iterable[Pytree]) -> nn.Module:
    """Set every batch norm's statistics to the mean over `batches`, each a network input; change and return `network`.

    Only batch norms are put in training mode, so dropout stays inactive.

    Raises:
        DataError: no batch was given, or one that the network cannot take.
    """
    norms = [part for part in network.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]
    modes = {part: part.training for part in network.modules()}
    momenta = {norm: norm.momentum for norm in norms}
    means = {norm: _MeanStatistics(norm) for norm in norms if needs_statistics(norm)}
    network.eval()
    for norm in norms:
        norm.reset_running_stats()
        if norm not in means:
            norm.momentum = None  # a plain mean over the batches
        norm.train()
    count = 0
    for batch in batches:
        run_batch(network, batch, count)
        count += 1
    for norm in norms:
        norm.momentum = momenta[norm]
    for mean in means.values():
        mean.write()
    for part, training in modes.items():
        part.training = training
    if count == 0 and norms:
        raise DataError("recalibrate needs at least one batch; got none: pass some training batches")
    return network
