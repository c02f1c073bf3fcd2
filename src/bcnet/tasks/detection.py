"""Detection: boxes around objects, each found as the point in its middle (CenterNet).

Notation: `p` the chance of a class at a point of the network's map, `y` 1 in the middle of a box of that class and a
Gaussian around it, as wide as a box may be off without overlapping less than 0.7, `N` the boxes of an image:

    -1/N sum { (1 - p)^2 log p  where y = 1,  (1 - y)^4 p^2 log(1 - p)  elsewhere }
    + 1/N sum over boxes of 0.1 |size - z_size| + |offset - z_offset|

with sizes and offsets in points of the map. A box is found at every point that is the highest of its neighbours.

Sources: Zhou, Wang and Krähenbühl, "Objects as Points", 2019; the radius of the Gaussian is that of Law and Deng,
"CornerNet", ECCV 2018, by the roots of its equations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import default_collate

from bcnet.errors import DataError, ModelError, RecipeError
from bcnet.tasks.base import Metric, Task, shape_of
from bcnet.tasks.coco_ap import Found, Matches, Truth
from bcnet.tasks.shown import Shown, listed, name_of, with_boxes

_EXTRA = 4  # channels beside the classes: width, height and the offset of the middle, in points of the map
_OVERLAP = 0.7  # that a box may have with an object and still be called right, by the Gaussian
_SIZE_WEIGHT = 0.1  # of the sizes in the loss
_LEAST = 1e-4  # a chance is at least, and at most 1 minus that
_GROUPS = 20  # of images that the jackknife leaves out, one after the other
_SHOWN = 0.5  # the chance of a box that a report shows
_OUTSIDE = 1.0  # pixels that a box may reach beyond its image: annotations are rounded


@dataclass(frozen=True)
class Detection(Task):
    """Boxes and their classes; outputs `(batch, classes + 4, h, w)`, a map over the whole image.

    The first channels are logits of the classes, the others width and height of a box and the offset of its middle from
    the point, all in points of the map. Targets are a dict: "boxes" `(batch, most, 4)` as x1, y1, x2, y2 in pixels, and
    "labels" `(batch, most)`, -1 where an image has fewer boxes; `padded_boxes` collates such batches. `height` and
    `width` are those of the images, in pixels. Widths are ranked by the loss; the test measures COCO's average
    precision with at most `most` boxes an image, the error is that of a jackknife over groups of images.

    A network's last layer starts best with a bias of -2.2 for the classes, as in the paper: a tenth of the points.

    Example: `bcnet.search(net, loaders, task=Detection(classes=10, height=64, width=64), budget=..., run_dir=...)`

    Raises:
        RecipeError: a setting out of range.
    """

    name: ClassVar[str] = "detection"
    headline: ClassVar[Metric] = Metric(
        "ap", "AP", "%", meaning="COCO's average precision, over overlaps from 0.50 to 0.95, the mean over classes"
    )

    classes: int
    height: int
    width: int
    most: int = 100

    def __post_init__(self) -> None:
        if min(self.classes, self.height, self.width, self.most) < 1:
            raise RecipeError(f"classes, sides in pixels and boxes of an image are at least 1; got {self}")

    @property
    def outputs(self) -> int:
        """The classes, and where a box is."""
        return self.classes + _EXTRA

    def accepted(self, targets: Any, where: str) -> dict[str, Tensor]:
        """Boxes as float32 and labels as int64, if every box is one."""
        rule = 'a dict of "boxes" (batch, most, 4), x1, y1, x2, y2 in pixels, and "labels" (batch, most), -1 for none'
        if not isinstance(targets, Mapping) or not {"boxes", "labels"} <= targets.keys():
            got = f"a dict of {', '.join(targets)}" if isinstance(targets, Mapping) else shape_of(targets)
            raise DataError(
                f"the targets of {where} are {rule}; got {got}: bcnet.tasks.padded_boxes(most) is a collate_fn that "
                "makes such batches"
            )
        boxes = targets["boxes"].float()
        labels = targets["labels"].long()
        if boxes.ndim != 3 or boxes.shape != (*labels.shape, 4) or targets["labels"].is_floating_point():
            raise DataError(
                f"the targets of {where} are {rule}; got {tuple(boxes.shape)} and {targets['labels'].dtype} "
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
                    f"the boxes of {where} have {wanted}; got {[round(c, 3) for c in boxes[number, place].tolist()]} "
                    f"of class {int(labels[number, place])} in number {number} of a batch: look at that item"
                )
        inside = torch.minimum(boxes.clamp(min=0.0), limits)
        return {"boxes": inside.where(there[..., None], 0.0), "labels": labels.where(there, -1)}

    def check(self, outputs: Any, classes: int) -> None:
        """Raise ModelError unless there is a map of all classes and boxes."""
        wanted = self.outputs
        if not isinstance(outputs, Tensor) or outputs.ndim != 4 or outputs.shape[1] != wanted:
            raise ModelError(
                f"the model must return a map (batch, {wanted}, height, width) for a detection of {self.classes} "
                f"classes: their logits, then width, height and offset of a box; got {shape_of(outputs)}: change its "
                "last layer"
            )
        if outputs.shape[2] > self.height or outputs.shape[3] > self.width:
            raise ModelError(
                f"the map of a detection has no more points than the images have pixels, {self.height} x {self.width}; "
                f"got {tuple(outputs.shape[2:])}: give the task the size of your images"
            )

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """The mean over the images of the loss of each."""
        return -self.score(outputs, targets).mean()

    def score(self, outputs: Any, targets: Any) -> Tensor:
        """Minus the loss of each image."""
        logits, extra = outputs.float().tensor_split((self.classes,), dim=1)
        places = self._places(targets, logits)
        chances = logits.sigmoid().clamp(_LEAST, 1 - _LEAST)
        wanted = self._wanted(places, targets["labels"], logits)
        right = (1 - chances).square() * chances.log()
        wrong = (1 - wanted).pow(4) * chances.square() * (1 - chances).log()
        of_classes = -torch.where(wanted == 1, right, wrong).sum(dim=(1, 2, 3))
        there = (targets["labels"] >= 0).float()
        index = (places.row * logits.shape[-1] + places.column)[:, None].expand(-1, _EXTRA, -1)
        found = extra.flatten(2).gather(2, index)  # (batch, 4, most)
        off = (found - torch.stack([places.width, places.height, places.right, places.below], dim=1)).abs()
        of_boxes = (_SIZE_WEIGHT * off[:, :2].sum(dim=1) + off[:, 2:].sum(dim=1)) * there
        scores: Tensor = -(of_classes + of_boxes.sum(dim=1)) / there.sum(dim=1).clamp(min=1)
        return scores

    def found(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes `(batch, n, 4)` in pixels, their labels and scores `(batch, n)`, best first; `n` is `most` or fewer."""
        logits, extra = outputs.float().tensor_split((self.classes,), dim=1)
        rows, columns = logits.shape[-2:]
        chances = logits.sigmoid()
        peaks = chances.where(chances == functional.max_pool2d(chances, 3, 1, 1), 0.0)
        scores, index = peaks.flatten(1).topk(min(self.most, peaks[0].numel()))
        labels = index // (rows * columns)
        place = index % (rows * columns)
        size = extra.flatten(2).gather(2, place[:, None].expand(-1, _EXTRA, -1))  # (batch, 4, n)
        middle = torch.stack([place % columns, place // columns], dim=1) + size[:, 2:]
        half = size[:, :2].clamp(min=0.0) / 2
        scale = torch.tensor([self.width / columns, self.height / rows], device=outputs.device)[:, None]
        corners = torch.cat([(middle - half) * scale, (middle + half) * scale], dim=1).movedim(1, 2)
        limits = torch.tensor([self.width, self.height] * 2, device=outputs.device)
        return torch.minimum(corners.clamp(min=0.0), limits), labels, scores

    def figures(self, outputs: Any, targets: Any) -> Mapping[str, Tensor]:
        """Of each image the objects and then what was found, `(batch, rows, 6)`: box, label, score (of objects -1)."""
        boxes, labels, scores = self.found(outputs)
        wanted = targets["boxes"]
        classes = targets["labels"]
        objects = torch.cat([wanted, torch.stack([classes, torch.full_like(classes, -1)], dim=-1)], dim=-1)
        rows = torch.cat([objects.float(), torch.cat([boxes, torch.stack([labels, scores], dim=-1)], dim=-1)], dim=1)
        broken = outputs.isnan().flatten(1).any(dim=1)
        rows = rows.masked_fill(broken[:, None, None], torch.nan)
        return {"ap": rows, "ap50": rows}

    def measured(self, figures: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Average precision in percent; the errors leave out one of 20 groups of images after the other."""
        rows = figures["ap"].cpu()
        if rows.isnan().any():
            return ({key: torch.tensor(torch.nan) for key in figures},) * 2
        matches = Matches.of(*_taken_apart(rows))
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

    def shown(self, pictures: Tensor | None, targets: Any, outputs: Any = None, *, names: Sequence[str] = ()) -> Shown:
        """Outlines of the boxes; of a network's outputs those that are more likely than not."""
        if outputs is None:
            boxes = targets["boxes"]
            labels = targets["labels"]
            some = labels >= 0
        else:
            boxes, labels, scores = self.found(outputs)
            some = scores >= _SHOWN
        words = tuple(
            listed([name_of(label, names) for label in kinds[there].tolist()], "no box")
            for kinds, there in zip(labels, some, strict=True)
        )
        if pictures is None:
            return Shown(words=words)
        scale = torch.tensor([pictures.shape[-1] / self.width, pictures.shape[-2] / self.height] * 2)
        parts = zip(pictures, boxes.cpu() * scale, labels.cpu(), some.cpu(), strict=True)
        return Shown(torch.stack([with_boxes(p, box[there], kinds[there]) for p, box, kinds, there in parts]), words)

    def _places(self, targets: Mapping[str, Tensor], logits: Tensor) -> _Places:
        rows, columns = logits.shape[-2:]
        scale = torch.tensor([columns / self.width, rows / self.height] * 2, device=logits.device)
        left, top, right, bottom = (targets["boxes"] * scale).unbind(dim=-1)
        x = (left + right) / 2
        y = (top + bottom) / 2
        column = x.long().clamp(0, columns - 1)
        row = y.long().clamp(0, rows - 1)
        return _Places(row, column, right - left, bottom - top, x - column, y - row)

    def _wanted(self, places: _Places, labels: Tensor, logits: Tensor) -> Tensor:
        """The Gaussians of all boxes, `(batch, classes, h, w)`."""
        rows, columns = (torch.arange(size, device=logits.device) for size in logits.shape[-2:])
        down = (rows[:, None] - places.row[..., None, None]).square()  # (batch, most, h, 1)
        along = (columns - places.column[..., None, None]).square()  # (batch, most, 1, w)
        radius = radius_of(places.width, places.height)[..., None, None].floor()
        bells = torch.exp(-(down + along) / (2 * ((2 * radius + 1) / 6).square()))
        within = (torch.maximum(down, along) <= radius.square()) & (labels >= 0)[..., None, None]
        bells = bells.where(within, 0.0)
        index = labels.clamp(min=0)[..., None, None].expand_as(bells)
        return torch.zeros_like(logits).scatter_reduce(1, index, bells, "amax")


@dataclass(frozen=True)
class _Places:
    """The middle of every box on the map, `(batch, most)`: its point, and sizes and offsets in points."""

    row: Tensor
    column: Tensor
    width: Tensor
    height: Tensor
    right: Tensor
    below: Tensor


def radius_of(width: Tensor, height: Tensor) -> Tensor:
    """How far both corners of a box may be off for it to overlap with the object by 0.7 at least.

    They may be off in one direction, both inwards or both outwards; each is a root of a quadratic equation.
    """
    around = width + height
    area = width * height

    def smaller_root(share: float) -> Tensor:
        return (around - (around.square() - 4 * share * area).clamp(min=0).sqrt()) / 2

    shifted = smaller_root((1 - _OVERLAP) / (1 + _OVERLAP))
    inwards = smaller_root(1 - _OVERLAP) / 2
    outwards = ((around.square() + 4 * (1 / _OVERLAP - 1) * area).sqrt() - around) / 4
    return torch.stack([shifted, inwards, outwards]).amin(dim=0)


def _taken_apart(rows: Tensor) -> tuple[list[Truth], list[Found]]:
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
    """A `collate_fn` for items `(image, {"boxes": (n, 4), "labels": (n,)})`, as torchvision's detectors take them.

    It fills up to `most` boxes an image, with the label -1.

    Example: `DataLoader(data, 16, collate_fn=padded_boxes(most=20))`

    Raises:
        DataError: in the loader, an image of more boxes, or boxes of another form.
    """

    def collate(items: Sequence[tuple[Any, Mapping[str, Any]]]) -> tuple[Any, dict[str, Tensor]]:
        boxes = torch.zeros(len(items), most, 4)
        labels = torch.full((len(items), most), -1)
        for number, (_, target) in enumerate(items):
            given = torch.as_tensor(target["boxes"]).reshape(-1, 4)
            kinds = torch.as_tensor(target["labels"])
            if len(given) > most or kinds.shape != given.shape[:1]:
                raise DataError(
                    f"an image has at most {most} boxes and a label for each; got {len(given)} boxes and labels "
                    f"{tuple(kinds.shape)} in number {number} of a batch: give padded_boxes a larger number"
                )
            boxes[number, : len(given)], labels[number, : len(given)] = given, kinds
        return default_collate([image for image, _ in items]), {"boxes": boxes, "labels": labels}

    return collate
