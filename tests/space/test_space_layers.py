"""Every layer's share of the costs, against torch's own counter and the built network."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bcnet.space import LayerTerms, WidthSpace
from bcnet.supernet import build


class Mixed(nn.Module):
    """Residual, depthwise, concatenation, and a layer that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.twice = nn.Conv2d(8, 8, 1)
        self.side = nn.Conv2d(8, 6, 1)
        self.head = nn.Linear(14, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.twice(self.twice(self.depthwise(x)))
        return self.head(torch.cat([x, self.side(x)], 1).mean((2, 3)))


@pytest.fixture(scope="module")
def traced():
    torch.manual_seed(0)
    model = Mixed()
    return model, WidthSpace.trace(model, torch.zeros(2, 3, 6, 6))


def test_layers_are_in_network_order_with_what_they_make(traced):
    _, space = traced
    assert [(layer.name, layer.width(space.full)) for layer in space.layers] == [
        ("stem.0", 8),
        ("depthwise", 8),
        ("twice", 8),
        ("side", 6),
        ("head", 5),
        ("stem.1", None),
    ]
    assert [layer.width((3, 2)) for layer in space.layers] == [3, 3, 3, 2, 5, None]


@pytest.mark.parametrize("widths", [(8, 6), (3, 6), (5, 1)])
def test_every_layer_costs_what_the_built_one_does(traced, widths):
    model, space = traced
    network = build(model, space, widths)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        network.eval()(torch.zeros(1, 3, 6, 6))
    for layer in space.layers:
        flops = sum(counter.get_flop_counts().get(f"Mixed.{layer.name}", {}).values())
        assert int(layer.macs(np.array([widths]))[0]) == flops // 2, layer.name
        params = sum(p.numel() for p in network.get_submodule(layer.name).parameters())
        assert int(layer.params(np.array([widths]))[0]) == params, layer.name


def test_a_layer_survives_json(traced):
    for layer in traced[1].layers:
        assert LayerTerms.from_dict(json.loads(json.dumps(layer.to_dict()))) == layer
