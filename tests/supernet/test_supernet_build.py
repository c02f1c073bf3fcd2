"""Built networks are plain modules of the user's own class, freshly initialised as the original would be."""

import copy
import pickle

import pytest
import torch
from networks import PAPER, TRICKY, paper_network, tricky_network
from torch import nn

import bcnet.models
from bcnet.errors import DataError, ModelError, WidthError
from bcnet.space import Side, WidthSpace
from bcnet.supernet import Supernet, build, recalibrate


@pytest.mark.parametrize("name", [*TRICKY, "resnet20", pytest.param("mobilenetv2", marks=pytest.mark.slow)])
def test_built_networks_are_plain_modules(name: str) -> None:
    model, space, x = (paper_network if name in PAPER else tricky_network)(name)
    widths = space.sample(torch.Generator().manual_seed(3))
    network = build(model, space, widths)
    assert type(network) is type(model)
    assert [type(part) for part in network.modules()] == [type(part) for part in model.modules()]
    assert all(isinstance(p, nn.Parameter) and p.is_contiguous() for p in network.parameters())
    for mode in (True, False):
        assert network.train(mode)(x).shape == model.train(mode)(x).shape
    network.eval()
    torch.testing.assert_close(copy.deepcopy(network)(x), network(x))
    torch.testing.assert_close(pickle.loads(pickle.dumps(network))(x), network(x))
    exported = torch.export.export(network, (x,)).module()
    torch.testing.assert_close(exported(x), network(x))


def test_layers_carry_the_numbers_of_their_weights() -> None:
    model, space, _ = tricky_network("Groups")
    network = build(model, space, (6, 3))
    assert (network.grouped.groups, network.grouped.in_channels, network.grouped.out_channels) == (2, 6, 6)
    assert (network.norm.num_groups, network.norm.num_channels) == (2, 6)
    assert (network.last.in_channels, network.last.out_channels) == (6, 3)
    assert (network.head.in_features, network.head.out_features) == (3, 5)
    assert "Conv2d(6, 3" in repr(network)


@pytest.mark.slow
def test_fresh_weights_follow_the_originals_law_at_the_narrower_fan() -> None:
    model = bcnet.models.vgg19()
    space = WidthSpace.trace(model, torch.zeros(2, 3, 32, 32))
    widths = space.scaled(0.5)
    network = build(model, space, widths)
    for full, narrow in zip(model.modules(), network.modules(), strict=True):
        if isinstance(full, nn.Conv2d) and full.in_channels > 3:
            ratio = float((narrow.weight.std() / full.weight.std()).detach())
            assert ratio == pytest.approx(2**0.5, rel=0.05)
        if isinstance(full, nn.BatchNorm2d):
            assert torch.equal(narrow.weight, torch.ones_like(narrow.weight))
            assert torch.equal(narrow.bias, torch.zeros_like(narrow.bias))


class Gained(nn.Module):
    """Two layers whose weights were drawn for a gain of their own."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 128, 3)
        self.second = nn.Conv2d(128, 64, 1)  # whose fans no two laws make alike
        self.head = nn.Linear(64, 5)
        for layer in (self.first, self.second, self.head):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            with torch.no_grad():
                layer.weight.mul_(gain)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))).mean((2, 3)))


@pytest.mark.parametrize("activation", ["linear", "tanh", "relu"])
def test_the_law_is_that_of_the_activation(activation: str) -> None:
    torch.manual_seed(0)
    model = Gained(nn.init.calculate_gain(activation))
    space = WidthSpace.trace(model, torch.zeros(2, 3, 8, 8))
    network = build(model, space, tuple(width // 2 for width in space.full))
    assert float((network.second.weight.std() / model.second.weight.std()).detach()) == pytest.approx(2**0.5, rel=0.05)


class FannedOut(nn.Module):
    """Two layers whose weights were drawn by their outputs, of kernels that no group is as wide as."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 96, 3), nn.Conv2d(96, 32, 5)
        self.head = nn.Linear(32, 5)
        for layer in (self.first, self.second):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))).mean((2, 3)))


def test_weights_drawn_by_their_outputs_are_scaled_by_their_outputs() -> None:
    torch.manual_seed(0)
    model = FannedOut()
    space = WidthSpace.trace(model, torch.zeros(2, 3, 16, 16))
    network = build(model, space, (48, 8))
    assert float((network.second.weight.std() / model.second.weight.std()).detach()) == pytest.approx(2, rel=0.05)
    assert float((network.first.weight.std() / model.first.weight.std()).detach()) == pytest.approx(2**0.5, rel=0.1)


class Filtered(nn.Module):
    """A frozen filter on the image, a frozen table at the end, and a trained layer between them."""

    def __init__(self) -> None:
        super().__init__()
        self.edges = nn.Conv2d(3, 3, 3, padding=1, groups=3, bias=False)
        self.first = nn.Conv2d(3, 16, 3)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 1)
        self.mean = nn.Conv2d(16, 1, 1, bias=False)
        with torch.no_grad():
            self.edges.weight.copy_(torch.tensor([-1.0, 0.0, 1.0]).expand(3, 1, 3, 3))
            self.mean.weight.copy_(torch.arange(16.0).view(1, 16, 1, 1))
        self.edges.requires_grad_(False)
        self.mean.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.norm(self.first(self.edges(x))))
        return self.mean(x.softmax(1)).mean((2, 3))


@pytest.mark.parametrize("trained", [False, True])
def test_what_is_frozen_stays_bit_for_bit(trained: bool) -> None:
    torch.manual_seed(0)
    model = Filtered().train(trained)
    model(torch.randn(4, 3, 8, 8))  # in training mode batch norm counts: the model has been trained
    space = WidthSpace.trace(model, torch.zeros(2, 3, 8, 8), ignore=["second"])
    for widths in (space.full, tuple(width // 2 for width in space.full)):
        network = build(model, space, widths)
        assert torch.equal(network.edges.weight, model.edges.weight)
        assert torch.equal(network.mean.weight, model.mean.weight)
        assert not network.mean.weight.requires_grad
        assert not torch.equal(network.second.bias, model.second.bias)  # others are drawn again


class NoFirst(nn.Module):
    """A layer that lists a parameter it does not have before those it has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("gain", None)
        self.weight = nn.Parameter(torch.randn(8, 3, 3, 3))
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(nn.functional.conv2d(x, self.weight).mean((2, 3)))


def test_a_parameter_that_is_not_there_hides_no_other() -> None:
    model = NoFirst()
    space = WidthSpace.trace(model, torch.zeros(2, 3, 8, 8))
    network = build(model, space, (4,))
    assert network.weight.shape == (4, 3, 3, 3)
    assert network.gain is None
    assert network(torch.zeros(2, 3, 8, 8)).shape == (2, 5)


class Constants(nn.Module):
    """Weights whose law has no fan keep it, and constants stay."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3)
        nn.init.normal_(self.stem.weight, std=0.01)
        self.norm = nn.BatchNorm2d(64)
        nn.init.zeros_(self.norm.weight)
        self.head = nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.stem(x)).mean((2, 3)))


def test_laws_without_a_fan_and_constants_stay() -> None:
    model = Constants()
    space = WidthSpace.trace(model, torch.zeros(2, 3, 8, 8))
    network = build(model, space, (16,))
    assert float(network.stem.weight.detach().std()) == pytest.approx(0.01, rel=0.2)
    assert not network.norm.weight.any()
    assert float((network.head.weight.std() / model.head.weight.std()).detach()) == pytest.approx(2, rel=0.25)


class OneMap(nn.Module):
    """A map of positions by a convolution to a single channel, whose bias is a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.map = nn.Conv2d(8, 1, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.head((x * torch.sigmoid(self.map(x))).mean((2, 3)))


def test_a_single_number_has_no_law_and_stays() -> None:
    model = OneMap()
    space = WidthSpace.trace(model, torch.zeros(2, 3, 8, 8))
    network = build(model, space, space.narrowest, factory=lambda: model)  # a warning would be an error
    assert torch.equal(network.map.bias, model.map.bias)
    assert network.map.weight.shape == (1, 1, 1, 1)


def test_fresh_weights_are_new_draws_and_a_function_of_the_generator() -> None:
    model, space, _ = paper_network("resnet20")

    def weights(seed: int) -> torch.Tensor:
        return build(model, space, space.full, generator=torch.Generator().manual_seed(seed)).state_dict()

    one, same, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(one[key], same[key]) for key in one)
    drawn = [key for key, tensor in one.items() if tensor.dim() == 4]
    assert all(not torch.equal(one[key], other[key]) for key in drawn)
    assert all(not torch.equal(one[key], model.state_dict()[key]) for key in drawn)


def test_a_trained_model_does_not_lend_its_weights_to_a_fresh_network() -> None:
    model = TRICKY["Residual"]()
    space = WidthSpace.trace(model, torch.zeros(2, 3, 8, 8))
    model(torch.randn(4, 3, 8, 8))
    with torch.no_grad():
        model.stem.weight.fill_(100)
    network = build(model, space, space.full)
    assert float(network.stem.weight.detach().abs().max()) < 1
    assert torch.equal(network.norm.running_mean, torch.zeros(6))
    assert int(network.norm.num_batches_tracked) == 0


def test_a_factory_gives_the_fresh_weights() -> None:
    model = TRICKY["Residual"]()
    space = WidthSpace.trace(model, torch.zeros(2, 3, 8, 8))

    def factory() -> nn.Module:
        fresh = TRICKY["Residual"]()
        nn.init.constant_(fresh.head.bias, 7)
        return fresh

    before = torch.random.get_rng_state()
    assert torch.equal(build(model, space, (3, 2), factory=factory).head.bias, torch.full((5,), 7.0))
    assert torch.equal(torch.random.get_rng_state(), before)
    with pytest.raises(ModelError, match="must make a Residual; got Linear"):
        build(model, space, (3, 2), factory=lambda: nn.Linear(1, 1))


def test_recalibration_gives_the_statistics_of_the_batches() -> None:
    model, space, x = tricky_network("Residual")
    net = Supernet(model, space)
    widths = (4, 3)
    network = build(model, space, widths, weights=(net, Side.RIGHT))
    assert recalibrate(network, [x]) is network
    with torch.no_grad():
        got = network.eval()(x)
    expected = net(x, widths, Side.RIGHT)
    torch.testing.assert_close(
        got, expected, rtol=2e-2, atol=2e-2
    )  # running variances are unbiased, batch ones are not
    assert network.norm.momentum == model.norm.momentum
    with pytest.raises(DataError, match="at least one batch"):
        recalibrate(network, [])


def test_bad_widths_and_weights_say_so() -> None:
    model, space, _ = tricky_network("Residual")
    with pytest.raises(WidthError, match="one entry per group"):
        build(model, space, (1,))
    with pytest.raises(WidthError, match="a supernet and a side; got 'left'"):
        build(model, space, (1, 1), weights=(Supernet(model, space), "left"))
