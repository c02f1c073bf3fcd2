"""CNNs of torchvision and timm keep every property."""

import pytest
import torch
from networks import seeded
from properties import check_network
from torch import nn

from bcnet.space import WidthSpace
from bcnet.supernet import build
from studies.coverage.zoo import CNNS, QUICK, TRANSFORMERS, Entry

LARGE = 60_000_000
# Of networks that share a structure a small one is here (of VGG alexnet); the study of coverage has all.
DEEPER = (
    *("vit_b_16", "inception_v3", "resnet50", "wide_resnet50_2", "regnet_x_400mf", "vgg11", "vgg11_bn"),
    *("vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "resnet34", "resnet101", "resnet152"),
    *("wide_resnet101_2", "resnext101_32x8d", "resnext101_64x4d", "densenet161", "densenet169", "densenet201"),
    *(f"regnet_{kind}_{size}" for kind in "xy" for size in ("800mf", "1_6gf", "3_2gf", "8gf", "16gf", "32gf")),
    *("shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3"),
    *("convnext_small", "convnext_base", "convnext_large", *(f"efficientnet_v2_{size}" for size in "sml")),
    *(f"efficientnet_b{number}" for number in range(1, 8)),
    *("res2net50_26w_4s", "nf_regnet_b0", "regnetv_040", "nasnetalarge", "inception_v4", "cspdarknet53"),
)
FAST = [entry for entry in QUICK if entry.name == "torchvision:squeezenet1_1"]


def _small(entry: Entry) -> nn.Module:
    """The network, narrowed to a quarter where it is large: the same structure with a sixteenth of the weights."""
    model = entry.build()
    if sum(parameter.numel() for parameter in model.parameters()) < LARGE:
        return model
    space = WidthSpace.trace(model, entry.example())
    return build(model, space, space.scaled(0.25))


def _check(entry: Entry) -> None:
    pytest.importorskip(entry.name.partition(":")[0])
    model = seeded(lambda: _small(entry))
    check_network(model, entry.example(torch.float64))


@pytest.mark.parametrize("entry", FAST, ids=lambda entry: entry.name)
def test_networks_of_other_libraries_keep_every_property(entry: Entry) -> None:
    _check(entry)


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [entry for entry in CNNS if entry not in FAST and entry.name.partition(":")[2] not in DEEPER],
    ids=lambda entry: entry.name,
)
def test_all_networks_of_other_libraries_keep_every_property(entry: Entry) -> None:
    _check(entry)


@pytest.mark.slow
@pytest.mark.parametrize("entry", TRANSFORMERS, ids=lambda entry: entry.name)
def test_transformers_trace_where_rules_reach_and_say_where_not(entry: Entry) -> None:
    pytest.importorskip(entry.name.partition(":")[0])
    space = WidthSpace.trace(entry.build(), entry.example())
    assert space.groups
    pinned = [f for f in space.fixed if f.reason not in ("the network's input", "the network's output")]
    assert pinned, "a transformer with nothing pinned belongs to the list of networks that keep every property"
    for fixed in pinned:
        assert fixed.operator or fixed.reason.startswith("the model's own code breaks at other widths"), fixed
