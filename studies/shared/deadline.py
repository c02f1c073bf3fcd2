"""Work that stops by itself after so many minutes, and goes on another time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bcnet import Reporter


class TimeIsOver(KeyboardInterrupt):
    """Ends a run as Ctrl-C does: it keeps its state, and has not failed."""


@dataclass(frozen=True)
class Deadline(Reporter):
    """Raises TimeIsOver between two units of work, steps for instance, once `until` has come; a monotonic time."""

    until: float

    @classmethod
    def after(cls, minutes: float) -> Deadline:
        """So many minutes from now."""
        return cls(time.monotonic() + 60 * minutes)

    def check(self) -> None:
        """Raise TimeIsOver if it has come."""
        if time.monotonic() >= self.until:
            raise TimeIsOver

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Callable[[int, str], None]]:
        """See `Reporter`."""
        self.check()
        yield lambda done, detail: self.check()
