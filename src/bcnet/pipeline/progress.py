"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, str], None]  # (units done so far, a few words on how it goes)


class Reporter:
    """Hears about stages and notes; this one keeps silent. Subclasses show them."""

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Enter a stage of `total` units; the value is to be called as they are done."""
        yield lambda done, detail: None

    def note(self, text: str) -> None:
        """Hear something that a person should know."""
