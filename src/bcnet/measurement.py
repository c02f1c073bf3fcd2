"""Metrics measured on the test images, and their formatting. Importing this module loads no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(gt=0, lt=2**31)]
"""Return a field for a positive integer."""

Z95 = 1.96  # half-width of a 95 % interval in standard errors


@dataclass(frozen=True)
class Metric:
    """A metric on the test images, and its formatting.

    `key` names it in files; `name` and `unit` are for people; `higher` says whether higher is better. `share` marks a
    percentage of images, each of which counts 0 or 100. `meaning` completes the sentence "it is ..." in explanations.

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
        """Heading of a table column: "top-1 (%)"."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def text(self, value: float) -> str:
        """Format a value with its unit: "91.52 %"."""
        return f"{value:.{self.digits}f} {self.unit}".rstrip()


@dataclass(frozen=True)
class Measurement:
    """Metrics of a network on `count` test images: means by key, and their standard errors.

    `by_class` maps each class number to the number of its images and the mean of the headline metric.
    """

    figures: Mapping[str, float]
    errors: Mapping[str, float]
    count: int
    by_class: Mapping[int, tuple[int, float]] = field(default_factory=dict)

    def interval(self, metric: Metric) -> tuple[float, float]:
        """Return the 95 % confidence interval of one metric for this number of images."""
        value = self.figures[metric.key]
        if metric.share:
            return share_interval(value, self.count)
        half = Z95 * self.errors[metric.key]
        return value - half, value + half


def share_interval(percent: float, count: float) -> tuple[float, float]:
    """Return the 95 % confidence interval of a percentage of `count` images, in percent.

    This is Wilson's interval ("Probable inference", 1927). It has a positive width even where all images are right, and
    it stays within [0, 100].

    Example: 20 images of 20: `share_interval(100.0, 20)` is (83.9, 100).
    """
    share = percent / 100
    centre = (share + Z95**2 / (2 * count)) / (1 + Z95**2 / count)
    half = Z95 / (1 + Z95**2 / count) * math.sqrt(share * (1 - share) / count + Z95**2 / (4 * count**2))
    return 100 * max(0.0, centre - half), 100 * min(1.0, centre + half)
