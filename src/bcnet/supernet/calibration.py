"""Batch-norm statistics for a network whose weights came without any."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from bcnet.errors import DataError
from bcnet.nests import Nest, called


@torch.no_grad()
def recalibrate(network: nn.Module, batches: Iterable[Nest]) -> nn.Module:
    """Give every batch norm the mean statistics of `batches`, each a network input; changes and returns `network`.

    Only batch norm is put in training mode, so that dropout takes no part.

    Raises:
        DataError: no batch was given.
    """
    norms = [part for part in network.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]
    modes = {part: part.training for part in network.modules()}
    momenta = {norm: norm.momentum for norm in norms}
    network.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over the batches
        norm.train()
    count = 0
    for batch in batches:
        called(network, batch)
        count += 1
    for norm in norms:
        norm.momentum = momenta[norm]
    for part, training in modes.items():
        part.training = training
    if count == 0 and norms:
        raise DataError("recalibrate needs at least one batch; got none: pass some training batches")
    return network
