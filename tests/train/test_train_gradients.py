"""The step on a real supernet against four networks that stand alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from bcnet.space import Side, WidthSpace
from bcnet.space.layout import spans
from bcnet.supernet import Supernet, build
from bcnet.train import ChannelCounts, Complementary, SupernetLearner, Unilateral, accumulate_gradients


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU())
        self.depthwise = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.BatchNorm2d(6))
        self.inner = nn.Sequential(nn.Conv2d(6, 5, 1), nn.ReLU(), nn.Conv2d(5, 6, 1))
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.depthwise(self.stem(x))
        x = x + self.inner(x)
        return self.head(x.mean((2, 3)))


@pytest.fixture
def supernet():
    torch.manual_seed(0)
    model = Residual()
    space = WidthSpace.trace(model, torch.zeros(2, 2, 5, 5))
    return Supernet(model, space), model


def scattered(full, part, layouts, widths, side):
    """`part`, a gradient of a narrow network, in its place in zeros of the full shape."""
    grid = torch.meshgrid(
        *[
            torch.cat([torch.arange(start, start + size) for start, size in spans(layout, widths, side)])
            for layout in layouts
        ],
        indexing="ij",
    )
    return torch.zeros_like(full).index_put(grid, part)


@pytest.mark.parametrize("seed", range(4))
def test_the_step_is_the_sum_of_four_networks_that_stand_alone(supernet, seed):
    net, model = supernet
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, 2, 5, 5, generator=generator)
    y = torch.randint(3, (8,), generator=generator)
    learner = SupernetLearner(net, Complementary())
    terms = learner.plan(generator)
    accumulate_gradients(terms, lambda paths: [functional.cross_entropy(learner.forward(x, paths)[0], y)])

    expected = {name: torch.zeros_like(p) for name, p in net.network.named_parameters()}
    for path in [path for term in terms for path in term.paths]:
        alone = build(model, net.space, path.widths, weights=(net, path.side)).train()
        (functional.cross_entropy(alone(x), y) / 2).backward()
        for name, parameter in alone.named_parameters():
            layouts = net.space.layouts.get(name)
            grad = parameter.grad
            if layouts is not None:
                grad = scattered(expected[name], grad, layouts, path.widths, path.side)
            expected[name] += grad
    for name, parameter in net.network.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("strategy", [Complementary(), Unilateral()])
def test_the_counted_channels_are_those_that_receive_gradient(supernet, strategy):
    net, _ = supernet
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(16, 2, 5, 5, generator=generator), torch.randint(3, (16,), generator=generator)
    learner = SupernetLearner(net, strategy)
    hits = [torch.zeros(group.max_width, dtype=torch.long) for group in net.space.groups]
    counts = ChannelCounts(net.space)
    for _ in range(10):
        terms = learner.plan(generator)
        counts.add(terms)
        for path in (path for term in terms for path in term.paths):
            net.zero_grad()
            functional.cross_entropy(learner.forward(x, (path,))[0], y).backward()
            hits[0] += net.network.stem[1].weight.grad != 0
            hits[1] += net.network.inner[0].weight.grad.flatten(1).abs().sum(1) != 0
    assert [group.max_width for group in net.space.groups] == [6, 5]
    for hit, counted in zip(hits, counts.of, strict=True):
        assert (hit.numpy() <= counted).all()  # a dead ReLU may block a gradient
        assert ((hit.numpy() > 0) == (counted > 0)).all()
    assert (counts.spread() == 0).all() == isinstance(strategy, Complementary)


def test_both_sides_are_sides_of_the_same_weights(supernet):
    net, _ = supernet
    x = torch.randn(4, 2, 5, 5)
    full = net.space.full
    torch.testing.assert_close(net(x, full, Side.LEFT), net(x, full, Side.RIGHT))
