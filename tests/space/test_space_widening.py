"""Spaces and networks wider than the network itself."""

import copy
import json

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import bcnet
from bcnet.errors import ModelError, TraceError, WidthError
from bcnet.space import Side
from bcnet.space.widening import undo_widen

X = torch.zeros(2, 3, 8, 8)


class Network(nn.Module):
    """A residual block, a depthwise convolution, a norm of groups of two channels, and a linear layer."""

    def __init__(self, a: int = 8, b: int = 12, c: int = 6) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, a, 3, padding=1, bias=False), nn.BatchNorm2d(a), nn.ReLU())
        self.inside = nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, a, 1))
        self.depthwise = nn.Conv2d(a, a, 3, groups=a)
        self.last = nn.Sequential(nn.Conv2d(a, c, 3, stride=2), nn.GroupNorm(c // 2, c), nn.ReLU())
        self.head = nn.Linear(c, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        return self.head(self.last(self.depthwise(y + self.inside(y))).mean((2, 3)))


@pytest.fixture(scope="module")
def traced():
    torch.manual_seed(0)
    model = Network()
    return model, bcnet.WidthSpace.trace(model, X), bcnet.WidthSpace.trace(model, X, widen=1.5, num_choices=4)


def test_a_widened_space_is_that_of_a_wider_network(traced):
    _, space, wide = traced
    other = bcnet.WidthSpace.trace(Network(12, 18, 8), X, num_choices=4)  # 1.5 x 6 is 9, and 8 in units of 2
    assert [(g.max_width, g.unit, g.choices) for g in wide.groups] == [
        (g.max_width, g.unit, g.choices) for g in other.groups
    ]
    generator = torch.Generator().manual_seed(0)
    for widths in [wide.full, *(wide.sample(generator) for _ in range(5))]:
        assert wide.cost(widths) == other.cost(widths)
    assert (wide.reference, wide.original_widths) == (space.reference, space.full)
    assert dict(other.layouts) == dict(wide.layouts)
    assert [layer.out for layer in wide.layers] == [layer.out for layer in other.layers]


def test_uniform_at_the_cost_of_the_original_is_the_original(traced):
    _, space, wide = traced
    assert wide.uniform(macs=1.0) == space.full
    assert undo_widen(wide).full == space.full
    assert dict(undo_widen(wide).layouts) == dict(space.layouts)
    assert undo_widen(space) is space


def test_networks_no_wider_than_the_original_are_built_as_ever(traced):
    model, space, wide = traced
    for widths in (space.full, (3, 5, 4)):
        one, two = bcnet.supernet.build(model, space, widths), bcnet.supernet.build(model, wide, widths)
        assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def test_wider_networks_run_and_are_drawn_by_the_law_of_their_fan(traced):
    model, _, wide = traced
    network = bcnet.supernet.build(model, wide, wide.full)
    reference = Network(12, 18, 8)
    assert [tuple(p.shape) for p in network.parameters()] == [tuple(p.shape) for p in reference.parameters()]
    assert network(torch.randn(2, 3, 8, 8)).shape == (2, 5)
    assert network.last[1].num_groups == 4
    assert network.depthwise.groups == 12
    ratio = float((network.inside[0].weight.std() / model.inside[0].weight.std()).detach())
    assert ratio == pytest.approx((8 / 12) ** 0.5, rel=0.1)
    assert torch.equal(network.inside[1].weight, torch.ones(18))
    mixed = bcnet.supernet.build(model, wide, (12, 5, 4))
    assert mixed.inside[0].weight.shape == (5, 12, 3, 3)


def test_paths_of_a_widened_supernet_are_the_networks_built_of_them(traced):
    model, _, wide = traced
    widest = bcnet.supernet.build(model, wide, wide.full)
    supernet = bcnet.Supernet(widest, wide)
    x = torch.randn(4, 3, 8, 8)
    for widths in ((12, 18, 8), (10, 3, 2)):
        for side in Side:
            network = bcnet.supernet.build(widest, wide, widths, weights=(supernet, side)).train()
            torch.testing.assert_close(network(x), supernet(x, widths, side))
    with pytest.raises(WidthError, match="or build the widened one"):
        bcnet.Supernet(model, wide)


def test_an_architecture_wider_than_its_factory_is_rebuilt(traced):
    model, _, wide = traced
    document = json.loads(json.dumps(bcnet.supernet.describe(model, wide, (12, 7, 8))))
    network = bcnet.supernet.rebuild(document, Network)
    assert [tuple(p.shape) for p in network.parameters()] == [
        tuple(p.shape) for p in bcnet.supernet.build(model, wide, (12, 7, 8)).parameters()
    ]
    document["groups"][0]["width"] = 33
    with pytest.raises(ModelError, match="has width 33 of 8"):
        bcnet.supernet.rebuild(document, Network)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet20", "mobilenetv2", "vgg19", "resnet_digits"])
def test_costs_of_widened_networks_are_those_of_an_independent_counter(name):
    spec = bcnet.models.create(name)
    model = spec.build().eval()
    wide = bcnet.WidthSpace.trace(model, torch.zeros(2, *spec.input_size), widen=1.5)
    network = bcnet.supernet.build(model, wide, wide.full).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(1, *spec.input_size))
    assert counter.get_total_flops() == 2 * wide.cost(wide.full).macs
    assert sum(p.numel() for p in network.parameters()) == wide.cost(wide.full).params
    assert wide.uniform(macs=1.0) == wide.original_widths


class Table(nn.Module):
    """A scale for each of at most 8 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.scales = [0.5 + channel for channel in range(8)]
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return self.head(sum(self.scales[y.shape[1] - 1] * y for _ in range(2)).mean((2, 3)))


def test_code_that_breaks_when_wider_is_named():
    model = Table()
    before = copy.deepcopy(model.state_dict())
    assert bcnet.WidthSpace.trace(model, X).full == (8,)
    with pytest.raises(TraceError, match=r"Table does not run with them: IndexError.*or search without widening"):
        bcnet.WidthSpace.trace(model, X, widen=2.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("ratio", [0.9, 4.5, True, "1.5", float("nan")])
def test_ratios_out_of_range_are_refused(ratio):
    with pytest.raises(WidthError, match=r"widen must be in \[1, 4\]"):
        bcnet.WidthSpace.trace(Network(), X, widen=ratio)
