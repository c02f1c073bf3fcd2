"""Accuracy of a plain network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from bcnet.data.transfer import moved
from bcnet.errors import TrainingError
from bcnet.machine.precision import Precision, autocast, resolve_precision
from bcnet.nests import Nest, called


@dataclass(frozen=True)
class Accuracy:
    """Shares of `count` images whose label is the best guess (`top1`) or among the five best (`top5`), in [0, 1]."""

    top1: float
    top5: float
    count: int


@torch.inference_mode()
def accuracy(
    network: nn.Module, batches: Iterable[tuple[Nest, torch.Tensor]], *, precision: Precision = "fp32"
) -> Accuracy:
    """Top-1 and top-5 accuracy over batches of images `(batch, ...)` and labels `(batch,)`, in eval mode.

    The network's mode is given back as it was.

    Raises:
        TrainingError: no images, or logits that are not numbers.
    """
    was_training = network.training
    network.eval()
    device = next(network.parameters()).device
    resolved = resolve_precision(precision, device)
    sums = torch.zeros(3, dtype=torch.int64, device=device)  # asked for at the end: a GPU works ahead
    count = 0
    for x, y in batches:
        with autocast(resolved, device):
            logits = called(network, moved(x, device))  # (batch, classes)
        guesses = logits.topk(min(5, logits.shape[1]), dim=1).indices  # (batch, <= 5)
        right = guesses == moved(y, device)[:, None]
        sums += torch.stack([right[:, 0].sum(), right.sum(), logits.isnan().sum()])
        count += len(y)
    network.train(was_training)
    hits1, hits5, broken = sums.tolist()
    if broken:
        raise TrainingError("accuracy needs logits that are numbers; got NaN: the weights are broken, train again")
    if count == 0:
        raise TrainingError("accuracy needs at least one image; got none")
    return Accuracy(hits1 / count, hits5 / count, count)
