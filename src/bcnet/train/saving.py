"""Checkpoints of a training.

With several processes, rank 0 writes them. It decides by its clock, but only at steps where all processes check the
losses anyway, since all must act alike.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bcnet.distributed import Loaded, ProcessGroup
from bcnet.files.tensors import Tensors, read_latest, write_tensors
from bcnet.train.guard import LOOK_EVERY_ELSEWHERE

CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class Checkpoints:
    """Place and interval of checkpoints: every `every_steps` or `every_seconds`, and at the end.

    If saving is slow it happens less often, so that it takes at most 2 % of the time. `identity` names the run and
    stage; files of another identity are refused.
    """

    path: Path
    identity: dict[str, Any]
    every_seconds: float = CHECKPOINT_SECONDS
    every_steps: int | None = None


class Saver:
    """Checkpoints of one training of `total` steps, possibly disabled."""

    def __init__(self, checkpoints: Checkpoints | None, total: int, world: ProcessGroup) -> None:
        self._checkpoints = checkpoints
        self._total = total
        self._world = world
        self._last_save = time.monotonic()
        self._save_seconds = 0.0

    @property
    def name(self) -> str:
        """Name of the newest checkpoint in messages."""
        return str(self._checkpoints.path) if self._checkpoints else "no checkpoint"

    def look_is_due(self, done: int) -> bool:
        """Return whether to check the losses after `done` steps; all processes must agree."""
        return self._is_regular(done) or (self._world.size > 1 and done % LOOK_EVERY_ELSEWHERE == 0)

    def save_is_due(self, done: int, look: bool) -> bool:
        """Return whether to save after `done` steps; `look` means that the last one is checked anyway."""
        if self._checkpoints is None or not self._world.is_rank_zero:
            return False
        pause = max(self._checkpoints.every_seconds, 50 * self._save_seconds)
        by_the_clock = (look or self._world.size == 1) and time.monotonic() - self._last_save >= pause
        return by_the_clock or self._is_regular(done)

    def _is_regular(self, done: int) -> bool:
        every = self._checkpoints.every_steps if self._checkpoints else None
        return done == self._total or (every is not None and done % every == 0)

    def save(self, tensors: Tensors, state: dict[str, Any]) -> None:
        """Write a checkpoint and keep the previous one.

        Raises:
            RunError: it cannot be written.
        """
        assert self._checkpoints is not None
        start = time.monotonic()
        write_tensors(self._checkpoints.path, tensors, self._checkpoints.identity, state, keep_previous=True)
        self._last_save = time.monotonic()
        self._save_seconds = self._last_save - start

    def load_newest(self) -> Loaded | None:
        """Return the newest valid checkpoint on every process; None without checkpoints.

        Raises:
            RunError: no checkpoint is valid.
        """
        return self._world.tensors_from_rank_zero(self._read)

    def _read(self) -> Loaded | None:
        return read_latest(self._checkpoints.path, self._checkpoints.identity) if self._checkpoints else None
