"""Reconstruction: the outputs of a narrow network come close to the original's, by its weights alone."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_job import TinyNetwork
from torch import nn

import bcnet
from bcnet.errors import DataError, WidthError
from bcnet.space import Side
from bcnet.supernet import by_importance, recalibrate, reconstruct, reorder
from bcnet.supernet.build import narrow_in_place
from bcnet.supernet.reconstruction import _layers_in_order, _rows_of


def images(count=64, shape=(3, 9, 9), seed=1):
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


class Redundant(nn.Module):
    """Eight channels that are mixtures of three: three of them say all there is to say."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 6, 3, stride=2)
        self.head = nn.Linear(6, 4)
        with torch.no_grad():
            mixture = torch.randn(8, 3)
            self.first.weight.copy_((mixture @ self.first.weight[:3].flatten(1)).view_as(self.first.weight))
            self.first.bias.copy_(mixture @ torch.randn(3))

    def forward(self, x):
        return self.head(torch.relu(self.second(self.first(x))).mean((2, 3)))


def test_a_network_with_redundant_channels_computes_the_same_without_them():
    torch.manual_seed(0)
    model = Redundant().eval()
    space = bcnet.trace(model, images(2))
    before = copy.deepcopy(model.state_dict())
    x = images(seed=2)
    batches = [images(32, seed=3), images(32, seed=4)]
    errors = [
        (bcnet.narrow(model, space, (4, 6), calibrate=batches, reconstruct=r)(x) - model(x)).abs().max().item()
        for r in (False, True)
    ]
    assert errors[1] < 0.02 * errors[0]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@settings(max_examples=25, deadline=None)
@given(
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    padding=st.sampled_from([0, 1, "same"]),
    bias=st.booleans(),
    dims=st.sampled_from([0, 1, 2]),
)
def test_rows_times_weights_are_what_the_layer_gives(kernel, stride, dilation, padding, bias, dims):
    if dims == 0:
        layer, x = nn.Linear(5, 4, bias=bias), torch.randn(2, 7, 5)
    else:
        kind = (nn.Conv1d, nn.Conv2d)[dims - 1]
        if padding == "same":
            kernel, stride = 3, 1
        layer = kind(5, 4, kernel, stride, padding, dilation, bias=bias)
        x = torch.randn(2, 5, *(8, 7)[:dims])
    weight = layer.weight.flatten(1)
    if bias:
        weight = torch.cat([weight, layer.bias[:, None]], 1)
    y = layer(x) if dims == 0 else layer(x).movedim(1, -1)
    torch.testing.assert_close(_rows_of(layer, x) @ weight.T, y.flatten(0, -2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("widths", [(4, 6), (2, 3), (7, 11)])
def test_outputs_come_closer_than_by_new_statistics(widths):
    torch.manual_seed(0)
    model = recalibrate(TinyNetwork(), [images(64, (1, 8, 8))]).eval()
    space = bcnet.trace(model, images(2, (1, 8, 8)))
    x, batches = images(200, (1, 8, 8), 5), [images(128, (1, 8, 8), seed) for seed in range(3)]
    plain, restored = (
        (bcnet.narrow(model, space, widths, calibrate=batches, reconstruct=r)(x) - model(x)).square().mean()
        for r in (False, True)
    )
    assert restored < plain


def test_at_full_width_nothing_changes():
    torch.manual_seed(0)
    model = recalibrate(TinyNetwork(), [images(64, (1, 8, 8))]).eval()
    space = bcnet.trace(model, images(2, (1, 8, 8)))
    x = images(16, (1, 8, 8))
    torch.testing.assert_close(bcnet.narrow(model, space, space.full, calibrate=[x], reconstruct=True)(x), model(x))


class Others(nn.Module):
    """Layers that stay as they are: in groups, called twice, with a shared weight, of one's own class."""

    def __init__(self):
        super().__init__()

        class Own(nn.Conv2d):
            pass

        self.stem, self.grouped, self.twice = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, groups=2), nn.Conv2d(8, 8, 1)
        self.round, self.own = nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"), Own(8, 8, 1)
        self.one, self.other = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)
        self.other.weight = self.one.weight
        self.unused, self.last = nn.Linear(3, 3), nn.Conv2d(8, 2, 1)
        self.by_name, self.each = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        x = self.twice(torch.relu(self.twice(self.grouped(self.stem(x)))))
        x = self.by_name(input=self.other(torch.relu(self.one(self.own(self.round(x))))))
        x = torch.stack([self.each(x[0])])
        return self.last(x)


def test_only_plain_layers_that_are_called_once_are_solved():
    assert _layers_in_order(Others(), images(2)) == ["stem", "last"]


def test_modes_are_kept():
    torch.manual_seed(0)
    model = TinyNetwork().train()
    x = images(32, (1, 8, 8))
    space = bcnet.trace(model, x[:2])
    assert bcnet.narrow(model, space, (4, 6), calibrate=[x], reconstruct=True).training
    ranked = reorder(model, space, by_importance(model, space), x[:2]).train()
    ranked.first[1].eval()
    network = narrow_in_place(copy.deepcopy(ranked), space, (4, 6), Side.LEFT).eval()
    assert reconstruct(network, ranked, space, (4, 6), [x]) is network
    assert [part.training for part in (ranked, ranked.first[0], ranked.first[1])] == [True, True, False]
    assert not network.training


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({}, "inputs .calibrate=.; got no inputs"), ({"weights": "fresh", "calibrate": [images(8)]}, "got fresh weights")],
)
def test_it_needs_inputs_and_weights(arguments, message):
    model = TinyNetwork()
    space = bcnet.trace(model, images(2, (1, 8, 8)))
    with pytest.raises(WidthError, match=message):
        bcnet.narrow(model, space, (4, 6), reconstruct=True, **arguments)
    with pytest.raises(DataError, match=r"got no batch: give some"):
        bcnet.narrow(model, space, (4, 6), calibrate=[], reconstruct=True)
