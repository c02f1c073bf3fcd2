"""Records of a training.

Losses of every step, with their widths, to which the prior is fitted (Eq. 12-14), and counts of how often each channel
was trained, the measured fairness of Eq. 5-9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bcnet.costs import IntArray
from bcnet.errors import RunError
from bcnet.files.tensors import read_tensors, write_tensors
from bcnet.space import Side, Widths, WidthSpace
from bcnet.train.step import Term

_INITIAL = 1024
_ARRAYS = {
    "steps": (torch.int64, 1),
    "widths": (torch.int32, 2),
    "losses": (torch.float32, 1),
    "skipped": (torch.int64, 1),
}


class LossRecords:
    """Growing arrays of `steps` `(n,)` int64, `widths` `(n, groups)` int32 and `losses` `(n,)` float32.

    `skipped` counts failed steps, which have no record. With early stopping, `ended` is (epochs trained, best epoch).

    """

    def __init__(self, num_groups: int) -> None:
        self.num_groups = num_groups
        self.skipped: tuple[int, ...] = ()
        self.ended: tuple[int, int] | None = None
        self._count = 0
        self._steps = np.empty(_INITIAL, dtype=np.int64)
        self._widths = np.empty((_INITIAL, num_groups), dtype=np.int32)
        self._losses = np.empty(_INITIAL, dtype=np.float32)

    def __len__(self) -> int:
        return self._count

    @property
    def steps(self) -> npt.NDArray[np.int64]:
        """Step of every record, shape `(n,)`."""
        return self._steps[: self._count]

    @property
    def widths(self) -> npt.NDArray[np.int32]:
        """Widths of every record, shape `(n, groups)`."""
        return self._widths[: self._count]

    @property
    def losses(self) -> npt.NDArray[np.float32]:
        """Mean loss of every record, shape `(n,)`."""
        return self._losses[: self._count]

    def append(self, step: int, widths: Widths, loss: float) -> None:
        """Add one record."""
        if self._count == len(self._steps):
            self._steps, self._losses = (np.concatenate([a, np.empty_like(a)]) for a in (self._steps, self._losses))
            self._widths = np.concatenate([self._widths, np.empty_like(self._widths)])
        self._steps[self._count] = step
        self._widths[self._count] = widths
        self._losses[self._count] = loss
        self._count += 1

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return copies of the three arrays by name, and `skipped` as an array."""
        arrays = {name: torch.from_numpy(getattr(self, name).copy()) for name in ("steps", "widths", "losses")}
        return arrays | {"skipped": torch.tensor(self.skipped, dtype=torch.int64)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, torch.Tensor]) -> LossRecords:
        """Return the records from the result of `tensors()`.

        Raises:
            RunError: arrays are missing, of other types, or of inconsistent shapes.
        """
        for name, (kind, dims) in _ARRAYS.items():
            if name not in tensors:
                raise RunError(f"loss records must hold {', '.join(_ARRAYS)}; got none named {name!r}")
            if tensors[name].dtype != kind or tensors[name].ndim != dims:
                got = f"{tensors[name].dtype} of shape {tuple(tensors[name].shape)}"
                raise RunError(f"the {name} of loss records must be {kind} of {dims} dimensions; got {got}")
        steps, widths, losses, skipped = (tensors[name].numpy() for name in _ARRAYS)
        if steps.shape != losses.shape or steps.shape != widths.shape[:1]:
            raise RunError(
                f"loss records must be arrays (n,), (n, groups), (n,); got {steps.shape}, {widths.shape}, "
                f"{losses.shape}"
            )
        records = cls(widths.shape[1])
        records._count = len(steps)
        records.skipped = tuple(skipped.tolist())
        spare = max(_INITIAL - len(steps), 0)
        records._steps = np.pad(steps.astype(np.int64), (0, spare))
        records._losses = np.pad(losses.astype(np.float32), (0, spare))
        records._widths = np.pad(widths.astype(np.int32), ((0, spare), (0, 0)))
        return records

    def save(self, path: Path, identity: Mapping[str, Any]) -> None:
        """Write the records to a safetensors file, atomically, marked with their identity."""
        write_tensors(path, self.tensors(), identity)

    @classmethod
    def load(cls, path: Path, identity: Mapping[str, Any]) -> LossRecords:
        """Read what `save` wrote under the same identity.

        Raises:
            RunError: the file is missing, corrupt or of another identity.
        """
        return cls.from_tensors(read_tensors(path, identity)[0])


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
                f"channel counts must have one array per group, of {[len(c) for c in self.of]} channels; got "
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
