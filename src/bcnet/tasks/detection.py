"""Detection of boxes, each represented by its centre point (CenterNet).

Notation: `p` is the probability of a class at a point of the network's map. `y` is 1 at the centre of a box of that
class, with a Gaussian around it, as wide as a box may be off while overlapping by at least 0.7. `N` is the number of
boxes of an image:

    -1/N sum { (1 - p)^2 log p  where y = 1,  (1 - y)^4 p^2 log(1 - p)  elsewhere }
    + 1/N sum over boxes of 0.1 |size - z_size| + |offset - z_offset|

with sizes and offsets in points of the map. A box is detected at every local maximum.

Sources: Zhou, Wang and Krähenbühl, "Objects as Points", 2019; the Gaussian's radius is from Law and Deng, "CornerNet",
ECCV 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from bcnet.errors import ModelError
from bcnet.tasks.base import shape_of
from bcnet.tasks.boxes import BoxTask

_EXTRA = 4  # channels besides the classes: width, height and centre offset, in points of the map
_OVERLAP = 0.7  # smallest overlap of a shifted box that still counts, for the Gaussian
_SIZE_WEIGHT = 0.1  # weight of the sizes in the loss
_LEAST = 1e-4  # probabilities are clamped to this and to 1 minus this


@dataclass(frozen=True)
class Detection(BoxTask):
    """Boxes and their classes; outputs are a map `(batch, classes + 4, h, w)` over the whole image.

    The first channels are class logits, the others a box's width, height and centre offset, in points of the map.
    Targets and test metric are those of `BoxTask`; widths are ranked by the loss.

    Initialise the class bias of the network's last layer to -2.2, as in the paper: a tenth of the points.

    Example: `bcnet.search(net, loaders, task=Detection(classes=10, height=64, width=64), budget=..., run_dir=...)`

    Raises:
        RecipeError: a setting out of range.
    """

    name: ClassVar[str] = "detection"

    @property
    def outputs(self) -> int:
        """Return the number of classes plus four."""
        return self.classes + _EXTRA

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
        """Return the mean loss over the images."""
        return -self.score(outputs, targets).mean()

    def score(self, outputs: Any, targets: Any) -> Tensor:
        """Return the negative loss of each image."""
        logits, extra = outputs.float().tensor_split((self.classes,), dim=1)
        places = self._places(targets, logits)
        chances = logits.sigmoid().clamp(_LEAST, 1 - _LEAST)
        wanted = self._target_maps(places, targets["labels"], logits)
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

    def detections(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes `(batch, n, 4)` in pixels, labels and scores `(batch, n)`, best first; `n` is at most `most`."""
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

    def _places(self, targets: Mapping[str, Tensor], logits: Tensor) -> _Places:
        rows, columns = logits.shape[-2:]
        scale = torch.tensor([columns / self.width, rows / self.height] * 2, device=logits.device)
        left, top, right, bottom = (targets["boxes"] * scale).unbind(dim=-1)
        x = (left + right) / 2
        y = (top + bottom) / 2
        column = x.long().clamp(0, columns - 1)
        row = y.long().clamp(0, rows - 1)
        return _Places(row, column, right - left, bottom - top, x - column, y - row)

    def _target_maps(self, places: _Places, labels: Tensor, logits: Tensor) -> Tensor:
        """Return the Gaussians of all boxes, `(batch, classes, h, w)`."""
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
    """Centre of every box on the map, `(batch, most)`: its point, and sizes and offsets in points."""

    row: Tensor
    column: Tensor
    width: Tensor
    height: Tensor
    right: Tensor
    below: Tensor


def radius_of(width: Tensor, height: Tensor) -> Tensor:
    """Return how far both corners of a box may be off while it overlaps the object by at least 0.7.

    They may be shifted together, both inwards, or both outwards; each case is a root of a quadratic equation.
    """
    around = width + height
    area = width * height

    def smaller_root(share: float) -> Tensor:
        return (around - (around.square() - 4 * share * area).clamp(min=0).sqrt()) / 2

    shifted = smaller_root((1 - _OVERLAP) / (1 + _OVERLAP))
    inwards = smaller_root(1 - _OVERLAP) / 2
    outwards = ((around.square() + 4 * (1 / _OVERLAP - 1) * area).sqrt() - around) / 4
    return torch.stack([shifted, inwards, outwards]).amin(dim=0)
