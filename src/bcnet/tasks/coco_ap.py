"""COCO's average precision of boxes (all areas, 100 detections per image), equal to pycocotools.

AP is the mean over categories, IoU thresholds 0.50, 0.55, ..., 0.95, and recalls 0, 0.01, ..., 1 of the best precision
at that recall or above. Detections are matched greedily, best score first, each with the unmatched object of largest
overlap. Detections that match a crowd, whose IoU uses the detection's own area only, are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST = 100


@dataclass(frozen=True)
class Truth:
    """Objects of one image: boxes `(objects, 4)` as x1, y1, x2, y2, labels `(objects,)`, and the crowd mask."""

    boxes: FloatArray
    labels: IntArray
    crowd: BoolArray


@dataclass(frozen=True)
class Found:
    """Detections in one image: boxes `(detections, 4)`, labels and scores `(detections,)`."""

    boxes: FloatArray
    labels: IntArray
    scores: FloatArray


class AP(NamedTuple):
    """Average precision in percent, over all thresholds and at an IoU of 0.5."""

    ap: float
    ap50: float


def average_precision(truths: Sequence[Truth], found: Sequence[Found]) -> AP:
    """Return the AP over images, in the order of both sequences; NaN without objects."""
    return Matches.of(truths, found).average_precision()


@dataclass(frozen=True)
class _Matched:
    """Detections of one category in one image: scores `(d,)`, hits and ignored ones `(thresholds, d)`."""

    scores: FloatArray
    hits: BoolArray
    left_out: BoolArray
    objects: int


@dataclass(frozen=True)
class Matches:
    """Matched detections: for each category, those of every image."""

    by_label: Mapping[int, Sequence[_Matched]]

    @classmethod
    def of(cls, truths: Sequence[Truth], found: Sequence[Found]) -> Matches:
        """Match detections and objects image by image, in the order of both sequences."""
        labels = sorted({int(label) for truth in truths for label in truth.labels[~truth.crowd]})
        pairs = [*zip(truths, found, strict=True)]
        return cls({label: [_match(truth, one, label) for truth, one in pairs] for label in labels})

    def average_precision(self, images: Sequence[int] | None = None) -> AP:
        """Return the AP over some images by index, or all; NaN without objects."""
        found = [_of_label(parts, images) for parts in self.by_label.values()]
        by_label = [area for area in found if area is not None]
        if not by_label:
            return AP(float("nan"), float("nan"))
        percents = 100 * np.array(by_label)  # (labels, thresholds)
        return AP(float(percents.mean()), float(percents[:, 0].mean()))


def _match(truth: Truth, found: Found, label: int) -> _Matched:
    mine = truth.labels == label
    theirs = np.flatnonzero(found.labels == label)
    order = theirs[np.argsort(-found.scores[theirs], kind="stable")][:MOST]
    crowd = np.sort(truth.crowd[mine])  # crowds last
    boxes = truth.boxes[mine][np.argsort(truth.crowd[mine], kind="stable")]
    overlaps = iou(found.boxes[order], boxes, crowd)
    matches = [_match_detections(overlaps, crowd, threshold) for threshold in THRESHOLDS]
    hits, left_out = (np.array([match[part] for match in matches]) for part in (0, 1))
    return _Matched(found.scores[order], hits, left_out, int((~crowd).sum()))


def _of_label(parts: Sequence[_Matched], images: Sequence[int] | None) -> FloatArray | None:
    """Return the AP of one category at every threshold; None if these images have no such object."""
    some = parts if images is None else [parts[number] for number in images]
    objects = sum(part.objects for part in some)
    if not objects:
        return None
    order = np.argsort(-np.concatenate([part.scores for part in some]), kind="stable")
    hits = np.concatenate([part.hits for part in some], axis=1)[:, order]  # (thresholds, detections)
    left_out = np.concatenate([part.left_out for part in some], axis=1)[:, order]
    return np.array([_area(h[~i], objects) for h, i in zip(hits, left_out, strict=True)])


def _match_detections(overlaps: FloatArray, crowd: BoolArray, threshold: float) -> tuple[BoolArray, BoolArray]:
    """Return which detections match an object, and which a crowd: two bool arrays `(detections,)`."""
    hit = np.zeros(len(overlaps), dtype=bool)
    ignored = np.zeros(len(overlaps), dtype=bool)
    free = np.ones(len(crowd), dtype=bool)
    for place, row in enumerate(overlaps):
        objects = np.where(free & ~crowd & (row >= threshold), row, -1.0)
        if len(row) and objects.max() >= 0:
            # with equal overlaps pycocotools takes the last object
            best = len(row) - 1 - int(objects[::-1].argmax())
            hit[place] = True
            free[best] = False
        else:
            ignored[place] = bool((crowd & (row >= threshold)).any())
    return hit, ignored


def _area(hit: BoolArray, objects: int) -> float:
    """Return the mean over recalls of the best precision at that recall or above; `hit` is sorted by score."""
    if len(hit) == 0:
        return 0.0
    true = np.cumsum(hit)
    precision = true / np.arange(1, len(hit) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(true / objects, RECALLS, side="left")
    return float(np.append(best, 0.0)[places].mean())


def iou(boxes: FloatArray, others: FloatArray, crowd: BoolArray) -> FloatArray:
    """Return overlaps `(boxes, others)`; with a crowd, relative to the box's own area."""
    corner = np.maximum(boxes[:, None, :2], others[None, :, :2])
    sides = np.clip(np.minimum(boxes[:, None, 2:], others[None, :, 2:]) - corner, 0, None)
    shared = sides.prod(axis=2)
    own, area = ((b[:, 2:] - b[:, :2]).prod(axis=1) for b in (boxes, others))
    union = np.where(crowd[None], own[:, None], own[:, None] + area[None] - shared)
    return np.asarray(shared / np.maximum(union, 1e-12))
