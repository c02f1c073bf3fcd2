"""A narrow ResNet carries torchvision's detectors, forward and backward."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import bcnet
from bcnet.errors import ModelError
from bcnet.models import resnet20
from bcnet.models.detection import faster_rcnn, retinanet, stage_channels

torchvision = pytest.importorskip("torchvision")

DETECTORS = {"retinanet": retinanet, "faster_rcnn": faster_rcnn}
SMALL = {"min_size": 64, "max_size": 96}
# Smallest ones, so that the detectors' own python does not take long where operators are stand-ins.
FEW = {"retinanet": {"topk_candidates": 20}, "faster_rcnn": {f"rpn_{when}_nms_top_n_{mode}": 30
       for when in ("pre", "post") for mode in ("train", "test")}}  # fmt: skip


@pytest.fixture(scope="module")
def narrow() -> nn.Module:
    """A ResNet18 at odd widths, every stage another one, whose batch norms have seen images."""
    model = torchvision.models.resnet18(weights=None)
    space = bcnet.WidthSpace.trace(model, torch.zeros(2, 3, 64, 64))
    widths = tuple(max(1, group.max_width * (5 + i % 4) // 20) for i, group in enumerate(space.groups))
    network = bcnet.supernet.build(model, space, widths)
    images = torch.randn(8, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    return bcnet.supernet.recalibrate(network, [images])


def sample() -> tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]:
    """Two images of unequal size, with two objects and one."""
    generator = torch.Generator().manual_seed(2)
    images = [torch.rand(3, 64, 80, generator=generator), torch.rand(3, 72, 64, generator=generator)]
    boxes = [torch.tensor([[4.0, 6.0, 40.0, 44.0], [30.0, 20.0, 76.0, 60.0]]), torch.tensor([[10.0, 8.0, 50.0, 66.0]])]
    labels = [torch.tensor([1, 2]), torch.tensor([2])]
    return images, [{"boxes": b, "labels": k} for b, k in zip(boxes, labels, strict=True)]


def detector_of(name: str, network: nn.Module, **settings: object) -> nn.Module:
    return DETECTORS[name](network, 3, **SMALL, **FEW[name], **settings)


@pytest.mark.parametrize("name", DETECTORS)
def test_a_narrow_backbone_trains_and_detects(name: str, narrow: nn.Module) -> None:
    before = copy.deepcopy(narrow.state_dict())
    detector = detector_of(name, narrow)
    images, targets = sample()
    torch.manual_seed(0)
    losses = detector.train()(images, targets)
    assert all(torch.isfinite(loss) for loss in losses.values())
    sum(losses.values()).backward()
    body = detector.backbone.body
    grown = {key.partition(".")[0] for key, p in body.named_parameters() if p.grad is not None and p.grad.any()}
    assert grown == {"layer2", "layer3", "layer4"}
    with torch.no_grad():
        found = detector.eval()(images)
    assert [set(one) for one in found] == [{"boxes", "scores", "labels"}] * 2
    assert all(len(one["boxes"]) == len(one["scores"]) for one in found)
    assert all(torch.equal(narrow.state_dict()[key], value) for key, value in before.items())


@pytest.mark.parametrize("name", DETECTORS)
def test_the_pyramid_reads_the_widths_and_the_weights_of_the_network(name: str, narrow: nn.Module) -> None:
    detector = detector_of(name, narrow)
    channels = stage_channels(narrow)
    assert len(set(channels)) == 4
    inner = [block[0].in_channels for block in detector.backbone.fpn.inner_blocks]
    assert inner == list(channels[1:] if name == "retinanet" else channels)
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(3))
    stages = torchvision.models._utils.IntermediateLayerGetter(narrow.eval(), {"layer2": "2", "layer4": "4"})(x)
    got = list(detector.train().backbone.body(x).values())
    torch.testing.assert_close(got[-1], stages["4"], rtol=1e-4, atol=1e-5)  # frozen: evaluation's in training too
    torch.testing.assert_close(got[-3], stages["2"], rtol=1e-4, atol=1e-5)


OWN = {"retinanet": "retinanet_resnet50_fpn", "faster_rcnn": "fasterrcnn_resnet50_fpn"}


@pytest.mark.parametrize("name", DETECTORS)
def test_at_full_width_the_detector_is_torchvisions(name: str) -> None:
    own = getattr(torchvision.models.detection, OWN[name])(weights=None, weights_backbone=None)
    ours = DETECTORS[name](torchvision.models.resnet50(weights=None), frozen_norm=False, trainable_layers=5)
    shapes = {key: value.shape for key, value in ours.state_dict().items()}
    assert shapes == {key: value.shape for key, value in own.state_dict().items()}
    assert [p.requires_grad for p in ours.parameters()] == [p.requires_grad for p in own.parameters()]


@pytest.mark.parametrize(
    ("layers", "learning"),
    [(0, set()), (1, {"layer4"}), (5, {"conv1", "bn1", "layer1", "layer2", "layer3", "layer4"})],
)
def test_trainable_layers_are_the_last_ones(layers: int, learning: set[str], narrow: nn.Module) -> None:
    body = retinanet(narrow, 3, trainable_layers=layers, frozen_norm=False).backbone.body
    assert {name.partition(".")[0] for name, p in body.named_parameters() if p.requires_grad} == learning


def test_heads_are_a_function_of_the_generator(narrow: nn.Module) -> None:
    def weights(seed: int) -> torch.Tensor:
        return (
            retinanet(narrow, 3, generator=torch.Generator().manual_seed(seed)).backbone.fpn.inner_blocks[0][0].weight
        )

    before = torch.random.get_rng_state()
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert torch.equal(torch.random.get_rng_state(), before)


def grey() -> nn.Module:
    network = torchvision.models.resnet18(weights=None)
    network.conv1 = nn.Conv2d(1, 64, 7)
    return network


@pytest.mark.parametrize(
    ("network", "settings", "message"),
    [
        (resnet20, {}, r"torchvision's layout.*got CifarResNet without conv1, bn1, layer1, .*bcnet\.build"),
        (lambda: "resnet18", {}, "got str without conv1"),
        (grey, {}, r"3-channel convolution conv1; got Conv2d\(1, 64"),
        (lambda: torchvision.models.resnet18(weights=None), {}, r"has none.*bcnet\.recalibrate.*frozen_norm=False"),
        (lambda: torchvision.models.resnet18(weights=None), {"trainable_layers": 6}, "from 0 to 5; got 6"),
        (lambda: torchvision.models.resnet18(weights=None), {"num_classes": 1}, "counts the background.*got 1"),
    ],
)
def test_what_cannot_carry_a_detector_says_so(
    network: Callable[[], object], settings: dict[str, int], message: str
) -> None:
    for make in DETECTORS.values():
        with pytest.raises(ModelError, match=message):
            make(network(), **settings)
