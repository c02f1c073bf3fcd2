"""Networks that return dicts, tuples, lists or pyramids: outputs stay at full width unless they may vary."""

from collections.abc import Callable

import pytest
import torch
from networks import seeded
from properties import check_network, check_path_equals_built, tensors
from torch import nn

from bcnet.errors import TraceError
from bcnet.space import Side, WidthSpace
from bcnet.supernet import Supernet, build


class Heads(nn.Module):
    """Two stages, each with a side output of 5 channels; `pack` makes the output of the three."""

    def __init__(self, pack: Callable[..., object]) -> None:
        super().__init__()
        self.pack = pack
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 6, 3, stride=2, padding=1)
        self.side = nn.Conv2d(8, 5, 1)

    def forward(self, x: torch.Tensor) -> object:
        x = torch.relu(self.norm(self.stem(x)))
        return self.pack(torch.relu(self.deep(x)), self.side(x), x.mean((2, 3)))


def as_dict(deep: torch.Tensor, side: torch.Tensor, _: torch.Tensor) -> object:
    return {"deep": deep, "side": {"out": side}}


def as_list_with_gaps(deep: torch.Tensor, side: torch.Tensor, _: torch.Tensor) -> object:
    return [deep, None, (side, 3)]


def as_tuple_of_the_same(deep: torch.Tensor, side: torch.Tensor, _: torch.Tensor) -> object:
    return side, deep, side


PACKS = [as_dict, as_list_with_gaps, as_tuple_of_the_same]


def images(size: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("pack", PACKS)
def test_outputs_in_any_container_are_fixed(pack: Callable[..., object]) -> None:
    model, x = seeded(lambda: Heads(pack)), images(8)
    space = check_network(model, x)
    assert {group.name: group.max_width for group in space.groups} == {"stem": 8}
    held = {f.name: f.reason for f in space.fixed}
    assert held["deep.weight"] == held["side.weight"] == "the network's output"
    full, narrow = tensors(model(x)), tensors(Supernet(model, space)(x, (3,), Side.RIGHT))
    assert [t.shape for t in narrow] == [t.shape for t in full]


@pytest.mark.parametrize("pack", PACKS)
def test_outputs_that_may_vary_are_groups(pack: Callable[..., object]) -> None:
    model, x = seeded(lambda: Heads(pack)), images(8)
    space = WidthSpace.trace(model, x, vary_outputs=True)
    assert {group.name: group.max_width for group in space.groups} == {"stem": 8, "deep": 6, "side": 5}
    check_path_equals_built(model, space, x, (3, 2, 4))
    channels = [t.shape[1] for t in tensors(build(model, space, (3, 2, 4))(x))]
    assert channels == ([4, 2, 4] if pack is as_tuple_of_the_same else [2, 4])


def read_and_returned(deep: torch.Tensor, _: torch.Tensor, means: torch.Tensor) -> object:
    return deep, means


def test_a_layer_that_is_read_and_returned_is_fixed() -> None:
    model, x = seeded(lambda: Heads(read_and_returned)), images(8)
    with pytest.raises(TraceError, match=r"this network has none.*the network's output"):
        WidthSpace.trace(model, x, ignore="side")
    space = WidthSpace.trace(model, x, ignore="side", vary_outputs=True)
    assert [group.name for group in space.groups] == ["stem", "deep"]


def layer_getter() -> nn.Module:
    torchvision = pytest.importorskip("torchvision")
    resnet = torchvision.models.resnet18(weights=None)
    return torchvision.models._utils.IntermediateLayerGetter(resnet, {"layer1": "low", "layer3": "high"})


def frozen_layer_getter() -> nn.Module:
    torchvision = pytest.importorskip("torchvision")
    resnet = torchvision.models.resnet18(weights=None, norm_layer=torchvision.ops.FrozenBatchNorm2d)
    return torchvision.models._utils.IntermediateLayerGetter(resnet, {"layer2": "low", "layer4": "high"})


def feature_pyramid() -> nn.Module:
    utils = pytest.importorskip("torchvision.models.detection.backbone_utils")
    return utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None, norm_layer=nn.BatchNorm2d)


def segmentation(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        models = pytest.importorskip("torchvision.models.segmentation")
        auxiliary = {} if name.startswith("lraspp") else {"aux_loss": True}
        return getattr(models, name)(weights=None, weights_backbone=None, num_classes=5, **auxiliary)

    return make


def features_only(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        return pytest.importorskip("timm").create_model(name, pretrained=False, features_only=True)

    return make


# Factory, output channels, groups with the outputs fixed, and groups where they may vary.
REAL: dict[str, tuple[Callable[[], nn.Module], list[int], int, int]] = {
    "IntermediateLayerGetter": (layer_getter, [64, 256], 7, 9),
    "IntermediateLayerGetter, frozen batch norm": (frozen_layer_getter, [128, 512], 10, 12),
    "torchvision FPN": (feature_pyramid, [256] * 5, 13, 17),
    "timm resnet18": (features_only("resnet18"), [64, 64, 128, 256, 512], 8, 12),
    "timm mobilenetv3": (features_only("mobilenetv3_small_050"), [16, 8, 16, 24, 288], 20, 25),
    "timm densenet121": (features_only("densenet121"), [64, 256, 512, 1024, 1024], 58, 120),
    "timm convnext": (features_only("convnext_atto"), [40, 80, 160, 320], 12, 16),
    "fcn_resnet50": (segmentation("fcn_resnet50"), [5, 5], 39, 41),
    "deeplabv3_mobilenet": (segmentation("deeplabv3_mobilenet_v3_large"), [5, 5], 37, 39),
    "lraspp_mobilenet": (segmentation("lraspp_mobilenet_v3_large"), [5], 30, 31),
}

DEEP = ("timm densenet121", "fcn_resnet50", "deeplabv3_mobilenet")


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [] if name == "IntermediateLayerGetter" else [pytest.mark.networks if name in DEEP else pytest.mark.slow]


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in REAL])
def test_pyramids_and_segmentation_networks(name: str) -> None:
    factory, channels, fixed_groups, all_groups = REAL[name]
    model, x = seeded(factory), images(64)
    assert [t.shape[1] for t in tensors(model.eval()(x))] == channels
    space = WidthSpace.trace(model, x)
    assert len(space.groups) == fixed_groups
    check_path_equals_built(model, space, x, space.sample(torch.Generator().manual_seed(1)))
    net = Supernet(model, space).eval()
    assert [t.shape[1] for t in tensors(net(x, space.narrowest, Side.LEFT))] == channels
    varying = WidthSpace.trace(model, x, vary_outputs=True)
    assert len(varying.groups) == all_groups
    widths = varying.sample(torch.Generator().manual_seed(2))
    check_path_equals_built(model, varying, x, widths)
    half = tensors(build(model, varying, varying.scaled(0.5)).eval()(x))
    assert [t.shape[1] for t in half] == [max(1, full // 2) for full in channels]
