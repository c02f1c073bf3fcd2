"""A searched ResNet as the backbone of torchvision's detectors with a feature pyramid (the paper's Table 7).

torchvision's constructors compute the pyramid's input channels from one number. Here they are read off the network,
whose stages may have any width. torchvision is imported when a detector is made.

Sources: Lin et al., "Feature Pyramid Networks", CVPR 2017, and "Focal Loss for Dense Object Detection", ICCV 2017;
Ren et al., "Faster R-CNN", NeurIPS 2015.

"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bcnet.errors import ModelError

_STAGES = ("layer1", "layer2", "layer3", "layer4")
_PYRAMID_CHANNELS = 256
# unfrozen by `trainable_layers`, in this order
_THAWED = (("layer4",), ("layer3",), ("layer2",), ("layer1",), ("conv1", "bn1"))


def retinanet(network: nn.Module, num_classes: int = 91, **settings: Any) -> nn.Module:
    """Return torchvision's RetinaNet on stages 2 to 4 of `network`, built like `retinanet_resnet50_fpn`.

    In training mode it takes images, tensors `(3, height, width)` in [0, 1], and targets `{"boxes": (objects, 4),
    "labels": (objects,)}`, and returns a dict of losses. In eval mode it takes images and returns boxes, labels and
    scores.

    Args:
        network: a ResNet with torchvision's layout, narrowed by `bcnet.build` or not; it is copied with its weights.
        num_classes: classes including the background, class 0.
        settings: for the backbone, `trainable_layers=3` (how many of layer4, layer3, layer2, layer1 and the stem are
            trained, from the last one), `frozen_norm=True` (freeze its batch norms) and `generator` (CPU, source of the
            initial weights of pyramid and heads; default: seed 0); and further arguments of
            `torchvision.models.detection.RetinaNet`, such as `min_size=800`.

    Raises:
        ModelError: a network with another layout, batch norms without statistics to freeze, settings out of range, or
            torchvision is missing.
    """

    def last_level(ops: Any) -> nn.Module:
        level: nn.Module = ops.LastLevelP6P7(_PYRAMID_CHANNELS, _PYRAMID_CHANNELS)
        return level

    return _detector("retinanet.RetinaNet", network, num_classes, _STAGES[1:], last_level, **settings)


def faster_rcnn(network: nn.Module, num_classes: int = 91, **settings: Any) -> nn.Module:
    """Return torchvision's Faster R-CNN on all four stages of `network`, built like `fasterrcnn_resnet50_fpn`.

    Images, targets, arguments and errors are those of `retinanet`; `settings` are passed to
    `torchvision.models.detection.FasterRCNN`.
    """

    def last_level(ops: Any) -> nn.Module:
        level: nn.Module = ops.LastLevelMaxPool()
        return level

    return _detector("faster_rcnn.FasterRCNN", network, num_classes, _STAGES, last_level, **settings)


def _detector(
    kind: str,
    network: nn.Module,
    num_classes: int,
    stages: Sequence[str],
    last_level: Callable[[Any], nn.Module],
    *,
    trainable_layers: int = 3,
    frozen_norm: bool = True,
    generator: torch.Generator | None = None,
    **settings: Any,
) -> nn.Module:
    """Return torchvision's detector `kind` on a pyramid over `stages`; `last_level(ops)` makes its top level."""
    _check_classes(num_classes)
    room, _, name = kind.partition(".")
    models = _torchvision(f"models.detection.{room}")
    ops = _torchvision("ops.feature_pyramid_network")
    with torch.random.fork_rng(devices=[]):
        _seed(generator)
        backbone = _pyramid(network, stages, last_level(ops), trainable_layers, frozen_norm)
        detector: nn.Module = getattr(models, name)(backbone, num_classes, **settings)
    return detector


def stage_channels(network: nn.Module) -> tuple[int, int, int, int]:
    """Return the output channels of layer1 to layer4 of a torchvision-like ResNet: (256, 512, 1024, 2048) for ResNet50.

    Raises:
        ModelError: a network with another layout.
    """
    children = dict(network.named_children()) if isinstance(network, nn.Module) else {}
    missing = [name for name in ("conv1", "bn1", *_STAGES) if name not in children]
    if missing:
        raise ModelError(
            "a detector's backbone must be a ResNet of torchvision's layout (conv1, bn1, layer1 to layer4); got "
            f"{type(network).__name__} without {', '.join(missing)}: give bcnet.build(torchvision.models.resnet50(), "
            "space, widths), for instance"
        )
    first = children["conv1"]
    if not isinstance(first, nn.Conv2d) or first.in_channels != 3:
        raise ModelError(f"a detector's backbone takes colour images, by a 3-channel convolution conv1; got {first}")
    one, two, three, four = (_last_convolution(name, children[name]).out_channels for name in _STAGES)
    return one, two, three, four


def _last_convolution(name: str, stage: nn.Module) -> nn.Conv2d:
    """Return the last registered convolution: the main branch's or the shortcut's, which have equal outputs."""
    convolutions = [part for part in stage.modules() if isinstance(part, nn.Conv2d)]
    if not convolutions:
        raise ModelError(f"every stage of a detector's backbone must have convolutions; got none in {name}")
    return convolutions[-1]


def _pyramid(
    network: nn.Module, stages: Sequence[str], last: nn.Module, trainable_layers: int, frozen_norm: bool
) -> nn.Module:
    """Return a copy of the network with a feature pyramid on the stages named."""
    if type(trainable_layers) is not int or not 0 <= trainable_layers <= len(_THAWED):
        raise ModelError(f"trainable_layers must be an int from 0 to {len(_THAWED)}; got {trainable_layers!r}")
    channels = dict(zip(_STAGES, stage_channels(network), strict=True))
    body = copy.deepcopy(network)
    if frozen_norm:
        _freeze_norms(body)
    thawed = tuple(name for names in _THAWED[:trainable_layers] for name in names)
    for name, parameter in body.named_parameters():
        parameter.requires_grad_(name.partition(".")[0] in thawed)
    utilities = _torchvision("models.detection.backbone_utils")
    pyramid: nn.Module = utilities.BackboneWithFPN(
        body,
        {stage: str(level) for level, stage in enumerate(stages)},
        [channels[stage] for stage in stages],
        _PYRAMID_CHANNELS,
        extra_blocks=last,
    )
    return pyramid


def _freeze_norms(body: nn.Module) -> None:
    """Replace every batch norm by torchvision's frozen one, which is equal in eval mode."""
    frozen = _torchvision("ops.misc").FrozenBatchNorm2d
    norms = {name: part for name, part in body.named_modules() if isinstance(part, nn.BatchNorm2d)}
    if norms and not any(_has_statistics(norm) for norm in norms.values()):
        raise ModelError(
            "frozen_norm=True keeps the statistics of the backbone's batch norms; got a network that has none: train "
            "it, load its weights or run bcnet.recalibrate(network, batches) first, or give frozen_norm=False"
        )
    for name, norm in norms.items():
        replacement = frozen(norm.num_features, eps=norm.eps)
        for key in ("weight", "bias", "running_mean", "running_var"):
            value = getattr(norm, key)
            if value is not None:
                getattr(replacement, key).copy_(value.detach())
        parent, _, child = name.rpartition(".")
        setattr(body.get_submodule(parent), child, replacement)


def _has_statistics(norm: nn.BatchNorm2d) -> bool:
    return norm.running_mean is not None and bool(norm.running_mean.any())


def _check_classes(num_classes: int) -> None:
    if type(num_classes) is not int or num_classes < 2:
        raise ModelError(f"num_classes counts the background too and must be an int of at least 2; got {num_classes!r}")


def _seed(generator: torch.Generator | None) -> None:
    source = generator or torch.Generator().manual_seed(0)
    torch.manual_seed(int(torch.randint(2**62, (), generator=source)))


def _torchvision(module: str) -> Any:
    try:
        return importlib.import_module(f"torchvision.{module}")
    except Exception as error:  # a build that does not match torch raises RuntimeError, not ImportError
        raise ModelError(
            f"detectors need the package torchvision; importing it failed with {type(error).__name__}: {error}: run "
            "`pip install 'bcnet[detection]'`, with torchvision in the build that fits your torch"
        ) from error


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
            f"a one-stage detector must have a backbone, a head and a transform, as torchvision's have; got "
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
