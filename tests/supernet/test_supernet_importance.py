"""Channels sorted by importance: the network computes the same, and a narrow path keeps the best."""

from __future__ import annotations

import copy

import pytest
import torch
from networks import TRICKY, paper_network, tricky_network
from torch import nn

import bcnet
from bcnet.space import Side, WidthSpace
from bcnet.supernet import both_ends, by_importance, reorder
from bcnet.supernet.importance import Order

COUPLED = {"ChannelConvolution": ["stem"], "Shuffles": ["stem"]}  # groups whose neighbours meet in the forward
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("mobilenetv2", "resnet50", "efficientnet_b0")]


def known(name: str) -> tuple[nn.Module, WidthSpace, torch.Tensor]:
    """A network with statistics in its batch norms that differ from channel to channel."""
    model, space, x = (tricky_network if name in TRICKY else paper_network)(name)
    model = copy.deepcopy(model).eval()
    generator = torch.Generator().manual_seed(1)
    for buffer_name, buffer in model.named_buffers():
        if "running" in buffer_name:
            buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return model, space, x


def shuffled(space: WidthSpace, seed: int) -> tuple[Order, ...]:
    generator = torch.Generator().manual_seed(seed)
    units = [torch.randperm(g.max_width // g.unit, generator=generator) for g in space.groups]
    within = [torch.arange(g.unit) for g in space.groups]
    return tuple(
        tuple((u[:, None] * g.unit + w).flatten().tolist()) for u, w, g in zip(units, within, space.groups, strict=True)
    )


@pytest.mark.parametrize("name", [*TRICKY, "resnet20", *LARGE])
def test_in_another_order_the_network_computes_the_same(name: str) -> None:
    model, space, x = known(name)
    before = copy.deepcopy(model.state_dict())
    moved = reorder(model, space, shuffled(space, 0), x)
    with torch.no_grad():
        torch.testing.assert_close(moved(x), model(x), rtol=1e-6, atol=1e-9)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items()), "the model itself stays"


@pytest.mark.parametrize("name", [*TRICKY, "resnet20", *LARGE])
def test_every_group_is_sorted_but_for_those_whose_neighbours_meet(name: str) -> None:
    model, space, x = known(name)
    sorted_again = by_importance(reorder(model, space, by_importance(model, space), x), space)
    for group, order in zip(space.groups, sorted_again, strict=True):
        as_it_is = order == tuple(range(group.max_width))
        assert as_it_is or group.name in COUPLED.get(name, ()), f"{group.name} is sorted"


@pytest.mark.parametrize("name", [*TRICKY, "resnet20"])
def test_ranks_alternate_between_both_ends(name: str) -> None:
    model, space, _ = known(name)
    orders = by_importance(model, space)
    for order, ends, group in zip(orders, both_ends(orders, space), space.groups, strict=True):
        units = [order[i : i + group.unit] for i in range(0, len(order), group.unit)]
        ranks = [units.index(ends[i : i + group.unit]) for i in range(0, len(ends), group.unit)]
        from_outside = [rank for pair in zip(ranks, ranks[::-1], strict=True) for rank in pair]
        assert from_outside[: len(units)] == [*range(len(units))]


@pytest.mark.parametrize("name", [*TRICKY, "resnet20"])
def test_channels_that_nothing_hangs_on_come_last(name: str) -> None:
    model, space, _ = known(name)
    generator = torch.Generator().manual_seed(2)
    weak = [int(torch.randint(g.max_width // g.unit, (), generator=generator)) for g in space.groups]
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            for d, dim in enumerate(space.layouts.get(key, ())):
                start = 0
                for segment in dim:
                    if segment.group is not None:
                        each = space.groups[segment.group].unit * segment.per_channel
                        parameter.narrow(d, start + weak[segment.group] * each, each).mul_(1e-3)
                    start += segment.size
    for group, unit, order in zip(space.groups, weak, by_importance(model, space), strict=True):
        assert order[-group.unit :] == tuple(range(unit * group.unit, (unit + 1) * group.unit))
        assert sorted(order) == [*range(group.max_width)]


def test_importance_is_the_sum_of_the_squares_of_all_weights_of_a_channel_without_biases() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 1), nn.Flatten(), nn.Linear(2, 2))
    space = WidthSpace.trace(model, torch.randn(2, 1, 1, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([1.0, 2.0, 0.0]).view(3, 1, 1, 1))  # squares 1, 4, 0
        model[0].bias.copy_(torch.tensor([0.0, 9.0, 0.0]))
        model[1].weight.copy_(torch.tensor([1.0, 1.0, 2.0]))  # 1, 1, 4
        model[2].weight.copy_(torch.tensor([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0]]).view(2, 3, 1, 1))  # 4, 0, 2
        model[4].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 0.0]]))  # 9, 0, beside 1 and 5 of the rows
    # 6, 5, 6: of equals the first comes first. And 10, 5.
    assert by_importance(model, space) == ((0, 2, 1), (0, 1))


def test_a_narrow_network_is_what_remains_when_its_weakest_channels_are_silent() -> None:
    model, space, x = known("resnet20")
    widths = bcnet.WidthSpace.uniform(space, bcnet.Budget(macs=0.5))
    orders = by_importance(model, space)
    ranked = reorder(model, space, orders, x)
    narrow = bcnet.supernet.build(ranked, space, widths, weights=(bcnet.Supernet(ranked, space), Side.LEFT))
    silent = copy.deepcopy(model)
    with torch.no_grad():
        for key, parameter in silent.named_parameters():
            for d, dim in enumerate(space.layouts.get(key, ())):
                (segment,) = dim
                if segment.group is not None:
                    dropped = torch.tensor(orders[segment.group][widths[segment.group] :], dtype=torch.long)
                    parameter.index_fill_(d, dropped, 0.0)
    torch.testing.assert_close(bcnet.supernet.recalibrate(narrow, [x])(x), bcnet.supernet.recalibrate(silent, [x])(x))


def test_a_network_that_insists_on_single_precision_is_compared_in_it() -> None:
    class Single(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.float())

    torch.manual_seed(0)
    model = Single(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    x = torch.randn(2, 3, 8, 8)
    space = WidthSpace.trace(model, x)
    ranked = reorder(model, space, by_importance(model, space), x)
    torch.testing.assert_close(ranked(x), model(x))
    assert not torch.equal(ranked[0].weight, model[0].weight)


def test_a_network_of_other_shapes_is_refused() -> None:
    _, space, x = known("resnet20")
    other = nn.Conv2d(3, 4, 3)
    with pytest.raises(bcnet.BCNetError, match="the model must be the one the space was traced from"):
        by_importance(other, space)
    with pytest.raises(bcnet.BCNetError, match="the model must be the one the space was traced from"):
        reorder(other, space, (), x)
