"""Common parts of all tasks with boxes: validation, COCO's average precision, and pictures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import default_collate

from bcnet.errors import DataError, RecipeError
from bcnet.measurement import Metric
from bcnet.pytree import by_name
from bcnet.tasks.base import Task, shape_of
from bcnet.tasks.coco_ap import Found, Matches, Truth
from bcnet.tasks.shown import Shown, list_words, name_of, with_boxes

_GROUPS = 20  # of images, left out in turn by the jackknife
_SHOWN = 0.5  # probability above which a report shows a box
_OUTSIDE = 1.0  # a box may exceed its image by this many pixels, since annotations are rounded


@dataclass(frozen=True)
class BoxTask(Task):
    """Boxes and their classes, however a network finds them; `height` and `width` are those of the images in pixels.

    Targets are a dict: "boxes" `(batch, most, 4)` as x1, y1, x2, y2 in pixels, and "labels" `(batch, most)`, padded
    with -1; `padded_boxes` collates such batches. The test metric is COCO's average precision with at most `most` boxes
    per image; its error is a jackknife over groups of images. Subclasses implement `detections`.

    Raises:
        RecipeError: a setting out of range.
    """

    headline: ClassVar[Metric] = Metric(
        "ap", "AP", "%", meaning="COCO's average precision, over overlaps from 0.50 to 0.95, the mean over classes"
    )

    classes: int
    height: int
    width: int
    most: int = 100

    def __post_init__(self) -> None:
        if min(self.classes, self.height, self.width, self.most) < 1:
            raise RecipeError(f"classes, sides in pixels and boxes of an image must be at least 1; got {self}")

    @abstractmethod
    def detections(self, outputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes `(batch, n, 4)` in pixels, labels and scores `(batch, n)`, best first; score 0 means no box."""

    def check_targets(self, targets: Any, where: str) -> dict[str, Tensor]:
        """Return boxes as float32 and labels as int64, validated."""
        rule = 'a dict of "boxes" (batch, most, 4), x1, y1, x2, y2 in pixels, and "labels" (batch, most), -1 for none'
        if not isinstance(targets, Mapping) or not {"boxes", "labels"} <= targets.keys():
            got = f"a dict of {', '.join(targets)}" if isinstance(targets, Mapping) else shape_of(targets)
            raise DataError(
                f"the targets of {where} must be {rule}; got {got}: bcnet.tasks.padded_boxes(most) is a collate_fn "
                "that makes such batches"
            )
        boxes = targets["boxes"].float()
        labels = targets["labels"].long()
        if boxes.ndim != 3 or boxes.shape != (*labels.shape, 4) or targets["labels"].is_floating_point():
            raise DataError(
                f"the targets of {where} must be {rule}; got {tuple(boxes.shape)} and {targets['labels'].dtype} "
                f"{tuple(labels.shape)}"
            )
        there = labels >= 0
        limits = torch.tensor([self.width, self.height] * 2, device=boxes.device)
        faults = {
            f"classes from 0 to {self.classes - 1}, or -1 for no box": (labels < -1) | (labels >= self.classes),
            "corners that are finite": there & ~boxes.isfinite().all(dim=-1),
            "x1 below x2 and y1 below y2": there & ~(boxes[..., :2] < boxes[..., 2:]).all(dim=-1),
            f"boxes within images of {self.height} x {self.width} pixels": there
            & ~((boxes >= -_OUTSIDE) & (boxes <= limits + _OUTSIDE)).all(dim=-1),
        }
        for wanted, wrong in faults.items():
            if wrong.any():
                number, place = wrong.nonzero()[0].tolist()
                raise DataError(
                    f"the boxes of {where} must have {wanted}; got "
                    f"{[round(c, 3) for c in boxes[number, place].tolist()]} of class {int(labels[number, place])} in "
                    f"number {number} of a batch: look at that item"
                )
        inside = torch.minimum(boxes.clamp(min=0.0), limits)
        return {"boxes": inside.where(there[..., None], 0.0), "labels": labels.where(there, -1)}

    def figures(self, outputs: Any, targets: Any) -> Mapping[str, Tensor]:
        """Return each image's objects, then its detections, `(batch, rows, 6)`: box, label, score (-1 for objects)."""
        boxes, labels, scores = self.detections(outputs)
        wanted = targets["boxes"]
        classes = targets["labels"]
        objects = torch.cat([wanted, torch.stack([classes, torch.full_like(classes, -1)], dim=-1)], dim=-1)
        rows = torch.cat([objects.float(), torch.cat([boxes, torch.stack([labels, scores], dim=-1)], dim=-1)], dim=1)
        broken = torch.stack([part.isnan().flatten(1).any(dim=1) for part in by_name(outputs).values()]).any(dim=0)
        rows = rows.masked_fill(broken[:, None, None], torch.nan)
        return {"ap": rows, "ap50": rows}

    def summarize(self, figures: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Return average precision in percent; errors leave out each of 20 groups of images in turn."""
        rows = figures["ap"].cpu()
        if rows.isnan().any():
            return ({key: torch.tensor(torch.nan) for key in figures},) * 2
        matches = Matches.of(*_split_rows(rows))
        whole = matches.average_precision()
        groups = min(_GROUPS, len(rows))
        without = torch.tensor(
            [
                matches.average_precision([n for n in range(len(rows)) if n % groups != left_out])
                for left_out in range(groups)
            ]
        )  # (groups, 2)
        without = without[without.isfinite().all(dim=1)]
        spread = (
            (len(without) - 1) / max(len(without), 1) * (without - without.mean(dim=0)).square().sum(dim=0)
        ).sqrt()
        keys = ("ap", "ap50")
        values = torch.tensor(whole, dtype=torch.float64)
        errors = spread.double().nan_to_num(0.0)
        return dict(zip(keys, values, strict=True)), dict(zip(keys, errors, strict=True))

    def show(self, pictures: Tensor | None, targets: Any, outputs: Any = None, *, names: Sequence[str] = ()) -> Shown:
        """Return the images with outlined boxes; of a network's outputs, those with a probability above one half."""
        if outputs is None:
            boxes = targets["boxes"]
            labels = targets["labels"]
            some = labels >= 0
        else:
            boxes, labels, scores = self.detections(outputs)
            some = scores >= _SHOWN
        words = tuple(
            list_words([name_of(label, names) for label in kinds[there].tolist()], "no box")
            for kinds, there in zip(labels, some, strict=True)
        )
        if pictures is None:
            return Shown(words=words)
        scale = torch.tensor([pictures.shape[-1] / self.width, pictures.shape[-2] / self.height] * 2)
        parts = zip(pictures, boxes.cpu() * scale, labels.cpu(), some.cpu(), strict=True)
        return Shown(torch.stack([with_boxes(p, box[there], kinds[there]) for p, box, kinds, there in parts]), words)


def _split_rows(rows: Tensor) -> tuple[list[Truth], list[Found]]:
    truths = []
    found = []
    for image in rows.double():
        boxes = image[:, :4].numpy()
        labels = image[:, 4].long().numpy()
        scores = image[:, 5].numpy()
        objects = (scores == -1) & (labels >= 0)
        guesses = scores > 0
        truths.append(Truth(boxes[objects], labels[objects], labels[objects] < 0))
        found.append(Found(boxes[guesses], labels[guesses], scores[guesses]))
    return truths, found


def padded_boxes(most: int) -> Callable[[Sequence[tuple[Any, Mapping[str, Any]]]], tuple[Any, dict[str, Tensor]]]:
    """Return a `collate_fn` for items `(image, {"boxes": (n, 4), "labels": (n,)})`, as for torchvision's detectors.

    It pads to `most` boxes per image, with label -1.

    Example: `DataLoader(data, 16, collate_fn=padded_boxes(most=20))`

    Raises:
        DataError: in the loader, for an image with more boxes, or boxes of another form.
    """

    def collate(items: Sequence[tuple[Any, Mapping[str, Any]]]) -> tuple[Any, dict[str, Tensor]]:
        boxes = torch.zeros(len(items), most, 4)
        labels = torch.full((len(items), most), -1)
        for number, (_, target) in enumerate(items):
            given = torch.as_tensor(target["boxes"]).reshape(-1, 4)
            kinds = torch.as_tensor(target["labels"])
            if len(given) > most or kinds.shape != given.shape[:1]:
                raise DataError(
                    f"an image must have at most {most} boxes and a label for each; got {len(given)} boxes and labels "
                    f"{tuple(kinds.shape)} in number {number} of a batch: give padded_boxes a larger number"
                )
            boxes[number, : len(given)] = given
            labels[number, : len(given)] = kinds
        return default_collate([image for image, _ in items]), {"boxes": boxes, "labels": labels}

    return collate
