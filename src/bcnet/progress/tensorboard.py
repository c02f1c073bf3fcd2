"""Scalars for TensorBoard (the extra `tensorboard`): losses, learning rates and scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bcnet.errors import BCNetError
from bcnet.progress.base import Advance, Reporter

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_POINTS = 2000  # most points of a curve


class TensorBoard(Reporter):
    """Writes a run's figures to event files under `folder`, with one TensorBoard run per stage.

    The step axis is the stage's own: training steps, or candidates. A resumed stage continues its files, and repeated
    steps replace those of an interrupted process. Nothing is written before the first figure.

    Example: `bcnet.search(..., reporter=bcnet.TensorBoard("runs/demo/tensorboard"))`, then
    `tensorboard --logdir runs/demo/tensorboard`.

    Raises:
        BCNetError: tensorboard is not installed.

    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils import tensorboard  # noqa: F401
        except ImportError as error:
            raise BCNetError(
                f"scalars for TensorBoard need the package tensorboard; importing it failed with {error}: "
                "run `pip install 'bcnet[tensorboard]'`"
            ) from None
        self._folder = Path(folder)
        self._totals: dict[str, int] = {}
        self._writers: dict[str, SummaryWriter] = {}

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Close the stage's event file at its end, even after an error."""
        self._totals[name] = total
        try:
            yield lambda done, detail: None
        finally:
            writer = self._writers.pop(name, None)
            if writer is not None:
                writer.close()

    def figures(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Write the figures of at most 2,000 evenly spaced steps of a stage, and of the last."""
        total = self._totals.get(stage, 0)
        every = max(1, total // _POINTS)
        if step % every and step != total:
            return
        if stage not in self._writers:
            self._writers[stage] = self._open(stage, step)
        for name, value in values.items():
            if math.isfinite(value):  # NaN before the first checked loss
                self._writers[stage].add_scalar(name, value, step)

    def _open(self, stage: str, step: int) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self._folder / stage), purge_step=step)
