"""Scores from a supernet. No other module of the searchers depends on supernets."""

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
from bcnet.pytree import Pytree, count
from bcnet.searchers.result import Candidate
from bcnet.searchers.search import Mapper
from bcnet.space import Side, Widths

Metric = Literal["accuracy", "loss"]
PerImage = Callable[[Tensor, Tensor], Tensor]  # logits (batch, classes), labels (batch,) -> (batch,)
_SIDES = (Side.LEFT, Side.RIGHT)


class Paths(Protocol):
    """Interface of a supernet: logits of any path."""

    def __call__(self, inputs: Any, widths: Widths, side: Side, /) -> Tensor:
        """Return logits `(batch, classes)`."""


class ImageScores(Protocol):
    """Scores of widths for each image by `metric`, as from a `SupernetEvaluator`."""

    @property
    def metric(self) -> Metric | PerImage:
        """Metric that is computed for each image."""

    def per_image(self, widths: Widths) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the score of each image, shape `(images,)`."""


class SupernetEvaluator:
    """Scores widths with a trained supernet: the mean over both sides on fixed validation batches (Eq. 15).

    `batches` are pairs of images `(batch, channels, height, width)` and labels `(batch,)`, all of one size, since batch
    norm computes its statistics from the batch. `metric` is "accuracy" (top-1 in percent), "loss" (negative mean
    cross-entropy), or a function of logits `(batch, classes)` and labels `(batch,)` that returns one value per image.
    Higher is always better. `sides` are the sides that the supernet was trained on (`Strategy.sides`), by default both.

    Example: `search_widths(space, SupernetEvaluator(supernet, batches), budget)`.

    Raises:
        SearchError: no batches, batches of different sizes, or an unknown metric.
    """

    def __init__(
        self,
        supernet: Paths,
        batches: Iterable[tuple[Pytree, Any]],
        metric: Metric | PerImage = "accuracy",
        sides: Sequence[Side] = _SIDES,
    ) -> None:
        self._supernet = supernet
        self._batches = tuple(batches)
        self._sides = sides
        self.metric: Metric | PerImage = metric
        if not callable(metric) and metric not in get_args(Metric):
            raise SearchError(f"the metric must be one of {', '.join(get_args(Metric))}; got {metric!r}")
        sizes = {len(labels) for _, labels in self._batches}
        if len(sizes) != 1 or 0 in sizes:
            raise SearchError(
                f"there must be validation batches, all of one size; got sizes {sorted(sizes)}: drop a ragged "
                "last one, it would change the batch statistics"
            )

    def __call__(self, widths: Widths) -> float:
        """Return the score of `widths`, the mean over all batches and sides."""
        return float(np.mean(self._on_batches(widths, self._batches)))

    @torch.inference_mode()
    def _on_batches(self, widths: Widths, batches: Sequence[tuple[Pytree, Any]]) -> list[float]:
        """Return the score on each batch, synchronising with the device only once, at the end."""
        paths = [(x, y, side) for x, y in batches for side in self._sides]
        means = [self._of_batch(self._supernet(x, widths, side), y).double().mean() for x, y, side in paths]
        rows = torch.stack(means).view(len(batches), len(self._sides)).tolist()
        return [float(np.mean(row)) for row in rows]

    def on_side(self, widths: Widths, side: Side) -> float:
        """Return the score of one path."""
        return float(self._of_path(widths, side).mean())

    def per_image(self, widths: Widths) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the score of each image, shape `(images,)`, the mean over sides."""
        return np.asarray(self.by_side(widths).sum(axis=0) / len(self._sides), dtype=np.float64)

    def by_side(self, widths: Widths) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """Return the score of each image for each side, shape `(sides, images)`."""
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
        raise SearchError(f"a score of your own must give a tensor of one value for each image, {images}; got {got}")
    return values.detach().double()


@dataclass(frozen=True)
class Rescored:
    """A candidate with its score on fresh data, and the 95 % interval `(low, high)` of that score."""

    candidate: Candidate
    score: float
    low: float
    high: float


def confidence_interval(per_image: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of `per_image`, shape `(images,)`, by the normal approximation.

    Example: `confidence_interval(evaluator.per_image(widths))`, for scores by loss.
    """
    centre = float(per_image.mean())
    half = Z95 * float(per_image.std(ddof=1)) / math.sqrt(len(per_image)) if len(per_image) > 1 else math.inf
    return centre - half, centre + half


def accuracy_interval(per_image: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy in percent from values per image, shape `(images,)`, each in [0, 100].

    It is the interval of a share (`bcnet.tasks.share_interval`) for an effective number of images. An image counts once
    if both sides agree on it and up to twice if they do not: the effective number is `n p (1 - p) / v`, with mean `p`
    and variance `v` over the `n` images.

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
    """Score the `count` best candidates again, since the best of many noisy scores is biased upwards. Best first.

    `evaluator` holds data that were not used in the search. `mapper` is as in `search_widths`. `callback` receives each
    candidate after it is scored.
    """
    interval = accuracy_interval if evaluator.metric == "accuracy" else confidence_interval

    def rescore_once(candidate: Candidate) -> list[float]:
        per_image = evaluator.per_image(candidate.widths)
        return [float(per_image.mean()), *interval(per_image)]

    whole = list(candidates)
    best = sorted(whole, key=lambda c: (-c.score, c.cost.macs))[:count]
    found = []
    for candidate, figures in zip(best, mapper(rescore_once, best), strict=True):
        found.append(Rescored(candidate, *figures))
        callback(found[-1])
    return tuple(sorted(found, key=lambda r: -r.score))
