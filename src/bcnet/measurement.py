"""Figures measured on the test images, and how they are written. Importing this loads no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(gt=0, lt=2**31)]
"""A field of a whole number of things, one at least."""

Z95 = 1.96  # standard errors on either side in a 95 % interval


@dataclass(frozen=True)
class Metric:
    """A figure measured on the test images, and how it is written.

    `key` names it in files, `name` and `unit` are for people; `higher` says which way is better. `share` is for
    percents of images, each of which counts as 0 or 100. `meaning` continues "it is", for who does not know the name.

    Example: `Metric("mae", "mean absolute error", "years", digits=1, higher=False)`.
    """

    key: str
    name: str
    unit: str = ""
    digits: int = 2
    higher: bool = True
    share: bool = False
    meaning: str = "the mean over images"

    @property
    def column(self) -> str:
        """For the head of a column: "top-1 (%)"."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def text(self, value: float) -> str:
        """A value with its unit: "91.52 %"."""
        return f"{value:.{self.digits}f} {self.unit}".rstrip()


@dataclass(frozen=True)
class Measurement:
    """Figures of a network on `count` test images: means of the task's figures, by key, and their standard errors.

    `by_class` has for each class number, where images have one, how many there were and the mean of the headline.
    """

    figures: Mapping[str, float]
    errors: Mapping[str, float]
    count: int
    by_class: Mapping[int, tuple[int, float]] = field(default_factory=dict)

    def interval(self, metric: Metric) -> tuple[float, float]:
        """Return what the number of images leaves to chance: the 95 % interval of one of the figures."""
        value = self.figures[metric.key]
        if metric.share:
            return share_interval(value, self.count)
        half = Z95 * self.errors[metric.key]
        return value - half, value + half


def share_interval(percent: float, count: float) -> tuple[float, float]:
    """95 % interval of a share of `count` images, in percent.

    Wilson's interval ("Probable inference", 1927), which keeps its width where all images are right or all wrong and
    never leaves [0, 100].

    Example: 20 images of 20: `share_interval(100.0, 20)` is (83.9, 100).
    """
    share = percent / 100
    centre = (share + Z95**2 / (2 * count)) / (1 + Z95**2 / count)
    half = Z95 / (1 + Z95**2 / count) * math.sqrt(share * (1 - share) / count + Z95**2 / (4 * count**2))
    return 100 * max(0.0, centre - half), 100 * min(1.0, centre + half)
