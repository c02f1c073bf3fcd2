"""Counts of how often each channel was trained: the measured fairness of Eq. 5-9."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bcnet.costs import IntArray
from bcnet.errors import RunError
from bcnet.files.tensors import read_tensors
from bcnet.space import Side, WidthSpace
from bcnet.train.step import Term


class ChannelCounts:
    """Number of paths that each channel was part of, per group.

    `of[g]` has shape `(max_width of group g,)`.
    """

    def __init__(self, space: WidthSpace) -> None:
        self.of: list[IntArray] = [np.zeros(width, dtype=np.int64) for width in space.full]

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue from the counts returned by `tensors()`.

        Raises:
            RunError: they belong to other groups.
        """
        shapes = {str(group): counts.shape for group, counts in enumerate(self.of)}
        if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != shapes:
            raise RunError(
                f"channel counts have one array per group, of {[len(c) for c in self.of]} channels; got "
                f"{[tuple(tensor.shape) for tensor in tensors.values()]}: start a new run"
            )
        self.of = [tensors[name].numpy().astype(np.int64) for name in shapes]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return copies of the counts, named by group number."""
        return {str(group): torch.from_numpy(counts.copy()) for group, counts in enumerate(self.of)}

    @staticmethod
    def load(path: Path, identity: Mapping[str, Any]) -> list[IntArray]:
        """Read `of` from a file of `tensors()` with the same identity.

        Raises:
            RunError: the file is missing, corrupt or of another identity.
        """
        tensors, _ = read_tensors(path, identity)
        return [tensors[str(group)].numpy() for group in range(len(tensors))]

    def add(self, terms: Iterable[Term]) -> None:
        """Count one step."""
        for term in terms:
            for path in term.paths:
                for counts, width in zip(self.of, path.widths, strict=True):
                    start = 0 if path.side is Side.LEFT else len(counts) - width
                    counts[start : start + width] += 1

    def spread(self) -> IntArray:
        """Return the largest minus the smallest count of each group, shape `(groups,)`; zero for fair training."""
        return np.array([counts.max() - counts.min() for counts in self.of], dtype=np.int64)
