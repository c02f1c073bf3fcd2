"""Detection by torchvision's one-stage detectors: RetinaNet, FCOS, SSD, SSDlite, and others of the same structure.

A detector's processing depends on its boxes, so its graph cannot be exported. The parts with weights can: backbone and
head, `bcnet.models.one_stage`, are the network to search. The rest, without weights, is the detector's own code: its
`forward` runs here with a backbone and a head that return the network's outputs.

Sources: Lin, Goyal, Girshick, He and Dollár, "Focal Loss for Dense Object Detection", ICCV 2017; Tian, Shen, Chen and
He, "FCOS", ICCV 2019; Liu et al., "SSD", ECCV 2016.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bcnet.errors import ModelError
from bcnet.tasks.base import shape_of
from bcnet.tasks.boxes import BoxTask

_LOGITS = "cls_logits"
_BOXES = "bbox_regression"
_OF_ANCHORS = ("sizes", "aspect_ratios", "scales", "steps")


@dataclass(frozen=True)
class OneStageDetection(BoxTask):
    """Boxes as found by one of torchvision's one-stage detectors; outputs are those of its head, a dict of tensors.

    `detector` defines how boxes are matched, the loss, and which boxes are kept. Its weights and its resizing are not
    used: batches have images of one size, `height` by `width`, with values in [0, 1]. `classes` is the detector's
    `num_classes`, including the background if it counts that; labels are below it. Targets and test metric are those of
    `BoxTask`; widths are ranked by the loss.

    Example:

        detector = torchvision.models.detection.retinanet_resnet50_fpn(num_classes=5)
        task = OneStageDetection(classes=5, height=256, width=256, detector=detector)
        found = bcnet.search(bcnet.models.one_stage(detector), loaders, task=task, budget=..., run_dir=...)
        narrow = bcnet.models.detector_with(detector, found.network)  # a RetinaNet again

    Raises:
        RecipeError: a setting out of range.
        ModelError: `detector` has other parts.
    """

    name: ClassVar[str] = "one-stage-detection"

    detector: nn.Module = field(kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = ("backbone", "head", "transform", "anchor_generator")
        missing = [name for name in wanted if not isinstance(getattr(self.detector, name, None), nn.Module)]
        if missing:
            raise ModelError(
                f"a one-stage detector must have the parts {', '.join(wanted)}, as torchvision's have; got "
                f"{type(self.detector).__name__} without {', '.join(missing)}: search a detector of another build in "
                "a training loop of your own (bcnet.SupernetSteps)"
            )

    @property
    def description(self) -> str:
        """The detector's class, numbers and anchors, and the settings."""
        numbers = {k: v for k, v in sorted(vars(self.detector).items()) if type(v) in (int, float)}
        anchors = {k: v for k, v in sorted(vars(self.detector.anchor_generator).items()) if k in _OF_ANCHORS}
        size = f"{self.classes} classes, {self.height}x{self.width}, at most {self.most}"
        return f"{self.name} by {type(self.detector).__name__} {numbers} {anchors}: {size}"

    def check(self, outputs: Any, classes: int) -> None:
        """Raise ModelError unless there is a row per anchor with all classes and four box numbers."""
        found = outputs if isinstance(outputs, Mapping) else {}
        anchors = self._anchors
        for name, last in ((_LOGITS, self.classes), (_BOXES, 4)):
            part = found.get(name)
            if not isinstance(part, Tensor) or part.shape[1:] != (anchors, last):
                raise ModelError(
                    f"the model must return a dict with {name} (batch, {anchors}, {last}), for the anchors of "
                    f"{type(self.detector).__name__} on images of {self.height} x {self.width} pixels; got "
                    f"{shape_of(outputs if part is None else part)}: give bcnet.models.one_stage(detector), and the "
                    "detector's num_classes as classes"
                )

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Return the sum of the detector's losses."""
        losses = self._carried_out(outputs, _in_list(targets))
        return torch.stack(list(losses.values())).sum()

    def score(self, outputs: Any, targets: Any) -> Tensor:
        """Return the negative loss of each image."""
        each = zip(_split_images(outputs), _in_list(targets), strict=True)
        return -torch.stack([torch.stack(list(self._carried_out(o, [t]).values())).sum() for o, t in each])

    def detections(self, outputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return the boxes that the detector keeps, padded to `most` with score 0 (see `BoxTask`)."""
        count = len(outputs[_LOGITS])
        device = outputs[_LOGITS].device
        boxes = torch.zeros(count, self.most, 4, device=device)
        labels = torch.zeros(count, self.most, dtype=torch.int64, device=device)
        scores = torch.zeros(count, self.most, device=device)
        finite = {name: part.nan_to_num() for name, part in outputs.items()}  # `figures` detects NaN
        for number, kept in enumerate(self._carried_out(finite)):
            best = kept["scores"].argsort(descending=True)[: self.most]
            boxes[number, : len(best)] = kept["boxes"][best].float()
            labels[number, : len(best)] = kept["labels"][best]
            scores[number, : len(best)] = kept["scores"][best].float()
        return boxes, labels, scores

    def _carried_out(self, outputs: Mapping[str, Tensor], targets: Sequence[Mapping[str, Tensor]] | None = None) -> Any:
        """Return the detector's losses by name or, without targets, its boxes, from the given outputs of its parts."""
        given = {name: part.float() for name, part in outputs.items()}
        first = given[_LOGITS]
        images = first.new_zeros(()).expand(len(first), 3, self.height, self.width)
        sizes = [(self.height, self.width)] * len(first)
        lists = importlib.import_module("torchvision.models.detection.image_list")
        features = {name: first.new_zeros(()).expand(len(first), 1, *size) for name, size in self._sizes.items()}
        stand_in = _copy(self.detector)
        stand_in.training = targets is not None
        stand_in.backbone = _with_forward(stand_in.backbone, lambda _: features)
        stand_in.head = _with_forward(stand_in.head, lambda _: given)
        stand_in.transform = _with_forward(stand_in.transform, lambda _, t: (lists.ImageList(images, sizes), t))
        stand_in.transform.postprocess = lambda found, *_: found
        return stand_in(list(images), targets)

    @cached_property
    def _sizes(self) -> dict[str, tuple[int, int]]:
        """Height and width of the backbone's maps by name; they do not depend on widths."""
        backbone = copy.deepcopy(self.detector.get_submodule("backbone")).eval()
        parameter = next(backbone.parameters())
        with torch.inference_mode():
            maps = backbone(parameter.new_zeros(1, 3, self.height, self.width))
        named = {"0": maps} if isinstance(maps, Tensor) else maps
        return {name: (part.shape[-2], part.shape[-1]) for name, part in named.items()}

    @cached_property
    def _anchors(self) -> int:
        """Number of anchors of the head."""
        anchors: Any = self.detector.get_submodule("anchor_generator")
        each = anchors.num_anchors_per_location()
        return sum(number * height * width for number, (height, width) in zip(each, self._sizes.values(), strict=True))


def _copy(module: nn.Module) -> Any:
    """Return the module with its own dict of parts, so that parts can be replaced."""
    copied = copy.copy(module)
    copied._modules = dict(module._modules)
    return copied


def _with_forward(module: nn.Module, forward: Any) -> Any:
    """Return the module with another forward."""
    answering = _copy(module)
    answering.forward = forward
    return answering


def _in_list(targets: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return boxes and labels of each image without padding."""
    pairs = zip(targets["boxes"], targets["labels"], strict=True)
    return [{"boxes": boxes[labels >= 0], "labels": labels[labels >= 0]} for boxes, labels in pairs]


def _split_images(outputs: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return the outputs of single images."""
    return [{name: part[n : n + 1] for name, part in outputs.items()} for n in range(len(outputs[_LOGITS]))]
