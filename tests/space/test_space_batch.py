"""Costs are for one input, whatever the batch of the example and wherever the code folds it."""

from collections.abc import Callable

import pytest
import torch
from networks import TRICKY, seeded
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bcnet.costs import Budget, Memory
from bcnet.space import WidthSpace


class Views(nn.Module):
    """Several pictures of one thing, folded into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 12, 3, 2, 1)
        self.hidden, self.head = nn.Linear(12, 10), nn.Linear(10, 5)

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.b(torch.relu(self.a(views.flatten(0, 1)))))
        x = torch.relu(self.hidden(x.mean((2, 3))))
        return self.head(x.view(*views.shape[:2], -1).amax(1))


class SharedFilter(nn.Module):
    """One filter for every channel: channels folded into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.k = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(1, 1, 5, padding=2, bias=False)
        self.b, self.head = nn.Conv2d(8, 12, 3, padding=1), nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.a(x))
        b, c, h, w = x.shape
        x = self.k(x.reshape(b * c, 1, h, w)).reshape(b, c, h, w)
        return self.head(torch.relu(self.b(x)).mean((2, 3)))


class KernelForEach(nn.Module):
    """A kernel for each image: the batch folded into the groups of a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.route = nn.Conv2d(3, 6, 3, padding=1), nn.Linear(6, 4)
        self.bank = nn.Parameter(torch.randn(4, 10, 6, 3, 3) * 0.1)
        self.b, self.head = nn.Conv2d(10, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.a(x))
        b, c, h, w = x.shape
        kernels = torch.einsum("bk,koihw->boihw", torch.softmax(self.route(x.mean((2, 3))), 1), self.bank)
        o = kernels.shape[1]
        x = F.conv2d(x.reshape(1, b * c, h, w), kernels.reshape(b * o, c, 3, 3), padding=1, groups=b).view(b, o, h, w)
        return self.head(torch.relu(self.b(torch.relu(x))).mean((2, 3)))


class MixedWeights(nn.Module):
    """A weight computed from others: what that holds in memory is there once for the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)
        self.bank = nn.Parameter(torch.randn(2, 8, 8, 3, 3) * 0.1)
        self.mix = nn.Parameter(torch.randn(2, 1, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.conv2d(torch.relu(self.stem(x)), (self.bank * self.mix.softmax(0)).sum(0))
        return self.head(torch.relu(x).mean((2, 3)))


FOLDED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Views": (Views, (5, 3, 13, 13)),
    "SharedFilter": (SharedFilter, (3, 9, 9)),
    "KernelForEach": (KernelForEach, (3, 9, 9)),
    "MixedWeights": (MixedWeights, (3, 9, 9)),
}
NETWORKS = FOLDED | {name: (kind, (3, 16, 16)) for name, kind in TRICKY.items()}


def traced(factory: Callable[[], nn.Module], shape: tuple[int, ...], batch: int) -> WidthSpace:
    example = torch.randn(batch, *shape, dtype=torch.float64)
    return WidthSpace.trace(seeded(factory), example).with_measures(Budget({Memory(): 1.0}))


@pytest.mark.parametrize("name", NETWORKS)
def test_costs_are_the_same_for_every_batch_of_the_example(name):
    factory, shape = NETWORKS[name]
    spaces = [traced(factory, shape, batch) for batch in (2, 3, 4)]
    for space in spaces[1:]:
        assert space.groups == spaces[0].groups
        for widths in (space.full, space.narrowest):
            assert space.cost(widths) == spaces[0].cost(widths)
        assert [(layer.macs, layer.params) for layer in space.layers] == [(x.macs, x.params) for x in spaces[0].layers]


@pytest.mark.parametrize("name", FOLDED)
def test_multiply_adds_with_a_folded_batch_are_what_torch_counts(name):
    factory, shape = FOLDED[name]
    network = seeded(factory).eval()
    counter = FlopCounterMode(display=False)
    x = torch.randn(3, *shape, dtype=torch.float64)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        network(x)
    assert traced(factory, shape, 3).reference.macs == counter.get_total_flops() / 2 / 3
