"""Scores from a supernet: the one room of the searchers that sees one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bcnet.errors import SearchError
from bcnet.measurement import Z95, share_interval
from bcnet.nests import Nest, count
from bcnet.searchers.result import Candidate
from bcnet.searchers.search import Mapper
from bcnet.space import Side, Widths

Metric = Literal["accuracy", "loss"]
PerImage = Callable[[Tensor, Tensor], Tensor]  # logits (batch, classes), labels (batch,) -> (batch,)
_SIDES = (Side.LEFT, Side.RIGHT)


class Paths(Protocol):
    """The interface of a supernet: logits of any path."""

    def __call__(self, inputs: Any, widths: Widths, side: Side, /) -> Tensor:
        """Logits `(batch, classes)`."""


class ImageScores(Protocol):
    """Scores widths image by image, by `metric`, as a `SupernetEvaluator` does."""

    @property
    def metric(self) -> Metric | PerImage:
        """Return what is made of the images."""

    def per_image(self, widths: Widths) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Scores of the single images, shape `(images,)`."""


class SupernetEvaluator:
    """Scores widths by a trained supernet: the mean over both sides on fixed validation batches (Eq. 15).

    `sides` are those that the supernet was trained by (`Strategy.sides`), where they are not both.

    `batches` are pairs of images `(batch, channels, height, width)` and labels `(batch,)`, all of one size, since batch
    norm takes its statistics from the batch. `metric` "accuracy" gives top-1 in percent, "loss" the negative mean
    cross-entropy; both are better when higher. A function of logits `(batch, classes)` and labels `(batch,)` gives
    values of your own, one for each image, higher being better.

    Example: `search_widths(space, SupernetEvaluator(supernet, batches), budget)`.

    Raises:
        SearchError: no batches, batches of different sizes, or an unknown metric.
    """

    def __init__(
        self,
        supernet: Paths,
        batches: Iterable[tuple[Nest, Any]],
        metric: Metric | PerImage = "accuracy",
        sides: Sequence[Side] = _SIDES,
    ) -> None:
        self._supernet = supernet
        self._batches = tuple(batches)
        self._sides = sides
        self.metric: Metric | PerImage = metric
        if not callable(metric) and metric not in get_args(Metric):
            raise SearchError(f"the metric is one of {', '.join(get_args(Metric))}; got {metric!r}")
        sizes = {len(labels) for _, labels in self._batches}
        if len(sizes) != 1 or 0 in sizes:
            raise SearchError(
                f"validation batches are at least one, all of one size; got sizes {sorted(sizes)}: drop a ragged "
                "last one, it would change the batch statistics"
            )

    def __call__(self, widths: Widths) -> float:
        """Score of `widths`, the mean over all batches and sides."""
        return float(np.mean(self._on_batches(widths, self._batches)))

    @torch.inference_mode()
    def _on_batches(self, widths: Widths, batches: Sequence[tuple[Nest, Any]]) -> list[float]:
        """The score on each batch. The device is asked once, after all of its work has been given to it."""
        paths = [(x, y, side) for x, y in batches for side in self._sides]
        means = [self._of_batch(self._supernet(x, widths, side), y).double().mean() for x, y, side in paths]
        rows = torch.stack(means).view(len(batches), len(self._sides)).tolist()
        return [float(np.mean(row)) for row in rows]

    def on_side(self, widths: Widths, side: Side) -> float:
        """Score of one path."""
        return float(self._of_path(widths, side).mean())

    def per_image(self, widths: Widths) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Scores of the single images, shape `(images,)`, the mean over the sides."""
        return np.asarray(self.by_side(widths).sum(axis=0) / len(self._sides), dtype=np.float64)

    def by_side(self, widths: Widths) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """Scores of the single images by each side, shape `(sides, images)`."""
        paths = torch.stack([self._of_path(widths, side) for side in self._sides])
        return np.asarray(paths.cpu().numpy(), dtype=np.float64)

    @torch.inference_mode()
    def _of_path(self, widths: Widths, side: Side) -> Tensor:  # (images,), float64
        parts = [self._of_batch(self._supernet(x, widths, side), y) for x, y in self._batches]
        return torch.cat(parts).double()

    def _of_batch(self, logits: Any, labels: Any) -> Tensor:
        if not isinstance(self.metric, str):
            return _one_for_each(self.metric(logits, labels), labels)
        if self.metric == "accuracy":
            right: Tensor = logits.argmax(dim=1) == labels
            return 100.0 * right.double()
        return -functional.cross_entropy(logits.float(), labels, reduction="none").double()


def _one_for_each(values: object, targets: Any) -> Tensor:
    images = count(targets)
    if not isinstance(values, Tensor) or values.shape != (images,):
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise SearchError(f"a score of your own gives a tensor of one value for each image, {images}; got {got}")
    return values.detach().double()


@dataclass(frozen=True)
class Rescored:
    """A candidate with its score on fresh data, and the 95 % interval `(low, high)` of that score."""

    candidate: Candidate
    score: float
    low: float
    high: float


def confidence_interval(per_image: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    """95 % interval of the mean of `per_image`, shape `(images,)`, by the normal approximation.

    Example: `confidence_interval(evaluator.per_image(widths))`, for scores by loss.
    """
    centre = float(per_image.mean())
    half = Z95 * float(per_image.std(ddof=1)) / math.sqrt(len(per_image)) if len(per_image) > 1 else math.inf
    return centre - half, centre + half


def accuracy_interval(per_image: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    """95 % interval of an accuracy in percent from that of single images, shape `(images,)`, each in [0, 100].

    That of a share (`bcnet.tasks.share_interval`). An image counts once where both sides agree on it and up to twice
    where they do not: the effective number is `n p (1 - p) / v`, with `p` the mean and `v` the variance over the `n`
    images.

    Example: 20 images of 20 right: (83.9, 100).
    """
    share = float(per_image.mean()) / 100
    spread = float(per_image.var()) / 100**2
    count = len(per_image) * (min(2.0, share * (1 - share) / spread) if spread > 0 else 1.0)
    return share_interval(100 * share, count)


def rescore(
    candidates: Sequence[Candidate],
    evaluator: ImageScores,
    count: int = 10,
    *,
    mapper: Mapper = map,
    callback: Callable[[Rescored], None] = lambda _: None,
) -> tuple[Rescored, ...]:
    """The `count` best of `candidates` scored again, best first: the best of many noisy scores flatters itself.

    `evaluator` holds data that took no part in the search. `mapper` is as in `search_widths`;
    `callback` hears of each as it is scored.
    """
    interval = accuracy_interval if evaluator.metric == "accuracy" else confidence_interval

    def again(candidate: Candidate) -> list[float]:
        per_image = evaluator.per_image(candidate.widths)
        return [float(per_image.mean()), *interval(per_image)]

    whole = list(candidates)
    best = sorted(whole, key=lambda c: (-c.score, c.cost.macs))[:count]
    found = []
    for candidate, figures in zip(best, mapper(again, best), strict=True):
        found.append(Rescored(candidate, *figures))
        callback(found[-1])
    return tuple(sorted(found, key=lambda r: -r.score))
