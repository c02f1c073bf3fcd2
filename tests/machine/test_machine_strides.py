"""Strided 1x1 convolutions of few channels are computed without the kernel that overwrites memory."""

import copy

import pytest
import torch
from torch import nn

from bcnet.machine.defaults import computes_in
from bcnet.machine.onednn import UnitStrides
from bcnet.space import Side, WidthSpace
from bcnet.supernet import Supernet
from bcnet.supernet.pairs import Pairs
from bcnet.train import NetworkLearner

LAYOUTS = (torch.channels_last, torch.contiguous_format)


def strided(channels, stride=2, **options):
    torch.manual_seed(channels)
    return nn.Conv2d(channels, 5, 1, stride, **options)


class Shortcut(nn.Module):
    """A residual block whose shortcut is such a convolution."""

    def __init__(self, channels=12):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1, bias=False)
        self.block = nn.Conv2d(channels, 8, 3, stride=2, padding=1, bias=False)
        self.shortcut = nn.Conv2d(channels, 8, 1, stride=2, bias=False)
        self.kinds = []
        self.shortcut.register_forward_hook(lambda part, *_: self.kinds.append(type(part)))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.stem(x).relu()
        return self.head((self.block(x) + self.shortcut(x)).relu().mean(dim=(2, 3)))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("channels", [1, 2, 3, 6, 7, 8, 15, 16, 24])
@pytest.mark.parametrize("stride", [2, (1, 2), 3])
def test_outputs_and_gradients_are_those_of_the_convolution(channels, stride, layout):
    conv = strided(channels, stride)
    exact = copy.deepcopy(conv).double()
    conv = conv.to(memory_format=layout)
    x = torch.randn(9, channels, 7, 8)
    y = x.double().requires_grad_()
    x = x.to(memory_format=layout).requires_grad_()
    with UnitStrides(conv).apply():
        output = conv(x)
    wanted = exact(y)
    back = torch.randn_like(output)
    output.backward(back)
    wanted.backward(back.double())
    for mine, theirs in ((output, wanted), (x.grad, y.grad), (conv.weight.grad, exact.weight.grad)):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(conv.bias.grad.double(), exact.bias.grad, rtol=1e-4, atol=1e-5)
    assert type(conv) is nn.Conv2d


def test_a_single_image_has_no_batch():
    conv = strided(3)
    x = torch.randn(3, 8, 8)
    with UnitStrides(conv).apply():
        torch.testing.assert_close(conv(x), conv.double()(x.double()).float())


class Own(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.parametrize(
    "part",
    [nn.Conv2d(3, 5, 1), nn.Conv2d(3, 5, 3, 2), strided(3, padding=1), strided(5, groups=5), Own(3, 5, 1, 2)],
    ids=["no stride", "kernel", "padding", "groups", "subclass"],
)
def test_other_convolutions_are_left_alone(part):
    kind = type(part)
    with UnitStrides(nn.Sequential(part)).apply():
        assert type(part) is kind


def test_blocks_inside_each_other_end_where_they_began():
    network = nn.Sequential(strided(3))
    strides = UnitStrides(network)
    with strides.apply():
        inside = type(network[0])
        with pytest.raises(RuntimeError, match="expected input"), strides.apply():
            network(torch.zeros(1, 4, 8, 8))
        assert type(network[0]) is inside is not nn.Conv2d
    assert type(network[0]) is nn.Conv2d


def test_all_that_is_trained_computes_them_so():
    model = Shortcut()
    x = torch.randn(4, 1, 8, 8)
    space = WidthSpace.trace(Shortcut(), x)
    supernet = Supernet(model, space)
    half = space.scaled(0.5)
    NetworkLearner(model).forward(x, ())
    supernet(x, half, Side.LEFT)
    Pairs(supernet.network, space).forward(x, half, space.complement(half))
    kinds = [*model.kinds, *supernet.network.kinds]
    assert len(kinds) == 3
    assert nn.Conv2d not in kinds
    before = len(model.kinds)  # the hooks of its copies record there too
    assert computes_in("bf16", model, x, torch.device("cpu"))
    assert len(model.kinds) == before + 2
    assert nn.Conv2d not in model.kinds
    assert type(model.shortcut) is type(supernet.network.shortcut) is nn.Conv2d
