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
# Of networks that one function makes the shallowest and the deepest are here; the study of coverage has all.
BETWEEN = (
    *("vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "resnet34", "resnet101", "densenet169"),
    *(f"regnet_{kind}_{size}" for kind in "xy" for size in ("800mf", "1_6gf", "3_2gf", "8gf", "16gf")),
    *("shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "mnasnet0_75", "mnasnet1_0", "convnext_small", "convnext_base"),
    *(f"efficientnet_b{number}" for number in range(1, 7)),
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
    [entry for entry in CNNS if entry not in FAST and entry.name.partition(":")[2] not in BETWEEN],
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
