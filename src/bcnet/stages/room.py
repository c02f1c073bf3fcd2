"""Upper bounds of the disk space that a stage needs."""

from __future__ import annotations

from torch import nn

from bcnet.train import Recipe
from bcnet.train.optimizer import STATES

_KEPT = 3  # checkpoints on disk: the newest, the previous, and the one being written


def training_bytes(module: nn.Module, recipe: Recipe, records: int = 0, groups: int = 0) -> int:
    """Return the peak bytes written by a training: checkpoints, weights, `records` losses, widths of `groups`."""
    weights = sum(int(tensor.nbytes) for tensor in module.state_dict().values())
    state = STATES[recipe.optimizer] * sum(int(parameter.nbytes) for parameter in module.parameters())
    state += ((recipe.ema is not None) + (recipe.early_stopping is not None)) * weights
    losses = records * (8 + 4 + 4 * groups)
    return _KEPT * (weights + state + losses) + weights + losses


def search_bytes(candidates: int, groups: int) -> int:
    """Return the final bytes of the evaluation store.

    A row has widths as text, scores on parts of the images, digests and indices; SQLite keeps a journal.
    """
    return 2 * candidates * (704 + 8 * groups)
