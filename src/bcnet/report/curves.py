"""Loss curves, thinned to what a screen can show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_POINTS = 200  # about as many as a chart has pixels to tell apart


@dataclass(frozen=True)
class Curve:
    """A training loss: bins of neighbouring steps, shape `(bins,)` each.

    `epoch` is where a bin ends, `mean` its mean loss, `low` and `high` its smallest and largest. `complete` says
    whether the stage has ended.
    """

    epoch: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    complete: bool

    @classmethod
    def of(cls, steps: npt.ArrayLike, losses: npt.ArrayLike, epochs: float, *, complete: bool) -> Curve:
        """The curve of records `(n,)` at ascending `steps`, n >= 1, that cover `epochs`."""
        times = np.asarray(steps)
        values = np.asarray(losses, dtype=np.float64)
        length = int(times[-1]) + 1
        edges = np.unique(np.linspace(0, length, min(_POINTS, length) + 1).round().astype(np.int64))
        places = np.searchsorted(times, edges)
        parts = [(end, values[a:b]) for end, a, b in zip(edges[1:], places, places[1:], strict=False) if b > a]
        return cls(
            epoch=np.array([end for end, _ in parts]) * epochs / length,
            mean=np.array([part.mean() for _, part in parts]),
            low=np.array([part.min() for _, part in parts]),
            high=np.array([part.max() for _, part in parts]),
            complete=complete,
        )

    def rows(self, stage: str) -> list[dict[str, Any]]:
        """One row per bin, for a chart."""
        columns = zip(self.epoch, self.mean, self.low, self.high, strict=True)
        return [
            {"stage": stage, "epoch": round(e, 4), "loss": round(m, 5), "low": round(lo, 5), "high": round(hi, 5)}
            for e, m, lo, hi in columns
        ]
