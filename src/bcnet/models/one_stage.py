"""Backbone and head of torchvision's one-stage detectors, the searchable part, as a network."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from bcnet.errors import ModelError


class OneStage(nn.Module):
    """Backbone and head of a detector: images `(batch, 3, height, width)` in [0, 1] -> the head's outputs, a dict.

    Images are normalised with the detector's means and deviations, and not resized.
    """

    image_mean: Tensor
    image_std: Tensor

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.backbone = detector.get_submodule("backbone")
        self.head = detector.get_submodule("head")
        transform: Any = detector.transform
        for name in ("image_mean", "image_std"):
            self.register_buffer(name, torch.tensor(getattr(transform, name)).reshape(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """See the class."""
        maps = self.backbone((images - self.image_mean) / self.image_std)
        found: dict[str, Tensor] = self.head([maps] if isinstance(maps, Tensor) else list(maps.values()))
        return found


def one_stage(detector: nn.Module) -> OneStage:
    """Return backbone and head of a copy of `detector`: torchvision's RetinaNet, FCOS, SSD or SSDlite.

    It is searched like any network, with `bcnet.tasks.OneStageDetection`.

    Raises:
        ModelError: a detector with another structure.
    """
    missing = [n for n in ("backbone", "head", "transform") if not isinstance(getattr(detector, n, None), nn.Module)]
    if missing:
        raise ModelError(
            f"a one-stage detector has a backbone, a head and a transform, as torchvision's have; got "
            f"{type(detector).__name__} without {', '.join(missing)}: search a detector of two stages in a training "
            "loop of your own (bcnet.SupernetSteps)"
        )
    return OneStage(copy.deepcopy(detector))


def detector_with(detector: nn.Module, network: nn.Module) -> nn.Module:
    """Return a copy of `detector` with the backbone and head of `network`: a narrower detector of its class.

    Raises:
        ModelError: `network` is not what `one_stage` gave, narrowed or not.
    """
    if not isinstance(network, OneStage):
        raise ModelError(
            f"a detector takes backbone and head from what bcnet.models.one_stage gave; got {type(network).__name__}"
        )
    whole = copy.deepcopy(detector)
    whole.backbone = copy.deepcopy(network.backbone)
    whole.head = copy.deepcopy(network.head)
    return whole
