"""The loss of a training as it goes on, in bins of neighbouring steps: of one size however long the training is."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BINS = 200  # about as many as a chart has pixels to tell apart


Bin = list[float]  # last step, count, mean, least and largest loss


class LossCurve:
    """Hears a loss after every step, and keeps count, mean, least and largest of at most 200 bins.

    Bins are `width` steps wide, which doubles where there would be more. Steps that are heard again, as after a resume
    from a checkpoint, take the place of the bins that had them.

    Example: `curve.add(1, 2.3)`.
    """

    def __init__(self, bins: Sequence[Bin] = (), width: int = 1) -> None:
        self.bins = [list(old) for old in bins]
        self.width = width

    def add(self, step: int, loss: float) -> None:
        """Hear the loss after `step`, which counts from one; one that is not finite is left out."""
        while self.bins and self.bins[-1][0] >= step:
            self.bins.pop()
        if not math.isfinite(loss):
            return
        new: Bin = [step, 1, loss, loss, loss]
        if self.bins and self._are_one(self.bins[-1], new):
            self.bins[-1] = _together(self.bins[-1], new)
        else:
            self.bins.append(new)
        while len(self.bins) > _BINS:
            self._widen()

    def _widen(self) -> None:
        self.width *= 2
        merged: list[Bin] = []
        for narrow in self.bins:
            if merged and self._are_one(merged[-1], narrow):
                merged[-1] = _together(merged[-1], narrow)
            else:
                merged.append(narrow)
        self.bins = merged

    def _are_one(self, one: Bin, two: Bin) -> bool:
        return (one[0] - 1) // self.width == (two[0] - 1) // self.width


def _together(one: Bin, two: Bin) -> Bin:
    count = one[1] + two[1]
    mean = (one[1] * one[2] + two[1] * two[2]) / count
    return [two[0], count, mean, min(one[3], two[3]), max(one[4], two[4])]
