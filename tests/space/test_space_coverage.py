"""CNNs of torchvision and timm keep every property."""

from typing import Any

import pytest
import torch
from networks import seeded
from properties import check_network
from torch import nn

from bcnet.space import WidthSpace
from bcnet.supernet import build
from studies.coverage.zoo import CNNS, QUICK, TRANSFORMERS, Entry

LARGE = 60_000_000
# One of each structure, the shallowest; `make test-networks` takes all.
SHALLOW = (
    *("alexnet", "resnet18", "resnext50_32x4d", "regnet_y_400mf", "densenet121", "googlenet", "mobilenet_v2"),
    *("mobilenet_v3_small", "shufflenet_v2_x0_5", "mnasnet0_5", "efficientnet_b0", "convnext_tiny", "skresnet18"),
    *("resnest14d", "nf_resnet26", "mobileone_s0", "ghostnet_050", "repghostnet_050", "lcnet_035", "rexnet_100"),
    *("dpn48b", "ese_vovnet19b_dw", "convnextv2_atto", "hgnetv2_b0", "fasternet_t0", "starnet_s1", "rdnet_tiny"),
    *("inception_next_atto", "repvit_m0_9", "dla34", "mobilevit_xxs"),
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


def _marked(entry: Entry) -> Any:
    is_shallow = entry.name.partition(":")[2] in SHALLOW
    return pytest.param(entry, id=entry.name, marks=pytest.mark.slow if is_shallow else pytest.mark.networks)


@pytest.mark.parametrize("entry", [_marked(entry) for entry in CNNS if entry not in FAST])
def test_all_networks_of_other_libraries_keep_every_property(entry: Entry) -> None:
    _check(entry)


@pytest.mark.parametrize("entry", [_marked(entry) for entry in TRANSFORMERS])
def test_transformers_trace_where_rules_reach_and_say_where_not(entry: Entry) -> None:
    pytest.importorskip(entry.name.partition(":")[0])
    space = WidthSpace.trace(entry.build(), entry.example())
    assert space.groups
    pinned = [f for f in space.fixed if f.reason not in ("the network's input", "the network's output")]
    assert pinned, "a transformer with nothing pinned belongs to the list of networks that keep every property"
    for fixed in pinned:
        assert fixed.operator or fixed.reason.startswith("the model's own code breaks at other widths"), fixed
