"""COCO's average precision of boxes (all areas, 100 detections per image), where pycocotools is not installed.

AP is the mean over categories, over IoU thresholds 0.50, 0.55, ..., 0.95, and over recalls 0, 0.01, ..., 1 of the best
precision at that recall or above. Detections are matched greedily, best score first, each with the free object it
overlaps most; those that match a crowd, whose IoU counts the detection's own area alone, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST = 100


@dataclass(frozen=True)
class Truth:
    """The objects of one image: boxes `(objects, 4)` as x1, y1, x2, y2, labels `(objects,)`, and which are crowds."""

    boxes: np.ndarray
    labels: np.ndarray
    crowd: np.ndarray


@dataclass(frozen=True)
class Found:
    """The detections in one image: boxes `(detections, 4)`, labels and scores `(detections,)`."""

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


class AP(NamedTuple):
    """Average precision in percent, over all thresholds and at an IoU of 0.5."""

    ap: float
    ap50: float


def average_precision(truths: Sequence[Truth], found: Sequence[Found]) -> AP:
    """AP over images, in the order of both sequences; not a number where there is no object."""
    labels = sorted({int(label) for truth in truths for label in truth.labels[~truth.crowd]})
    if not labels:
        return AP(float("nan"), float("nan"))
    by_label = 100 * np.array([_of_label(truths, found, label) for label in labels])  # (labels, thresholds)
    return AP(float(by_label.mean()), float(by_label[:, 0].mean()))


def _of_label(truths: Sequence[Truth], found: Sequence[Found], label: int) -> np.ndarray:
    """AP of one category at every threshold."""
    scores, hits, ignored, objects = [], [], [], 0
    for truth, one in zip(truths, found, strict=True):
        mine, theirs = truth.labels == label, np.flatnonzero(one.labels == label)
        order = theirs[np.argsort(-one.scores[theirs], kind="stable")][:MOST]
        crowd = np.sort(truth.crowd[mine])  # crowds last
        boxes = truth.boxes[mine][np.argsort(truth.crowd[mine], kind="stable")]
        overlaps = iou(one.boxes[order], boxes, crowd)
        matches = [_matched(overlaps, crowd, threshold) for threshold in THRESHOLDS]
        scores.append(one.scores[order])
        hits.append(np.array([hit for hit, _ in matches]))
        ignored.append(np.array([left_out for _, left_out in matches]))
        objects += int((~crowd).sum())
    order = np.argsort(-np.concatenate(scores), kind="stable")
    hit, left_out = (np.concatenate(parts, axis=1)[:, order] for parts in (hits, ignored))  # (thresholds, detections)
    return np.array([_area(h[~i], objects) for h, i in zip(hit, left_out, strict=True)])


def _matched(overlaps: np.ndarray, crowd: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Which detections match an object, and which a crowd: two bool arrays `(detections,)`."""
    hit = np.zeros(len(overlaps), dtype=bool)
    ignored = np.zeros(len(overlaps), dtype=bool)
    free = np.ones(len(crowd), dtype=bool)
    for place, row in enumerate(overlaps):
        objects = np.where(free & ~crowd & (row >= threshold), row, -1.0)
        if len(row) and objects.max() >= 0:
            # Of equal overlaps pycocotools takes the last object.
            best = len(row) - 1 - int(objects[::-1].argmax())
            hit[place], free[best] = True, False
        else:
            ignored[place] = bool((crowd & (row >= threshold)).any())
    return hit, ignored


def _area(hit: np.ndarray, objects: int) -> float:
    """The mean over recalls of the best precision at that recall or above; `hit` is in the order of the scores."""
    if len(hit) == 0:
        return 0.0
    true = np.cumsum(hit)
    precision = true / np.arange(1, len(hit) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(true / objects, RECALLS, side="left")
    return float(np.append(best, 0.0)[places].mean())


def iou(boxes: np.ndarray, others: np.ndarray, crowd: np.ndarray) -> np.ndarray:
    """Overlaps `(boxes, others)`; those with a crowd are shares of the box's own area."""
    corner = np.maximum(boxes[:, None, :2], others[None, :, :2])
    sides = np.clip(np.minimum(boxes[:, None, 2:], others[None, :, 2:]) - corner, 0, None)
    shared = sides.prod(axis=2)
    own, area = ((b[:, 2:] - b[:, :2]).prod(axis=1) for b in (boxes, others))
    union = np.where(crowd[None], own[:, None], own[:, None] + area[None] - shared)
    return shared / np.maximum(union, 1e-12)
