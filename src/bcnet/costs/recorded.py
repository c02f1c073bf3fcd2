"""A measure of the user's own as a run's files know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from bcnet.costs.base import Measure, Measured
from bcnet.costs.polynomial import IntArray
from bcnet.errors import RunError


@dataclass(frozen=True)
class Recorded(Measure):
    """A measure of the user's own, read from a file: its values are on record, its code is not."""

    described: str

    def __post_init__(self) -> None:
        # Of the instance, where those of other measures are of their class.
        name = self.described.partition(" ")[0]
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "unit", name)

    @property
    def description(self) -> str:
        """As the user's own measure describes itself."""
        return self.described

    def values(self, space: Measured, widths: IntArray) -> NoReturn:
        """Raise RunError."""
        raise RunError(f"the budget limits {self.described!r}, which only your code can count: give budget=... again")

    def constraints(self, space: Measured) -> NoReturn:
        """Raise RunError."""
        self.values(space, np.zeros((0, 0), dtype=np.int64))
