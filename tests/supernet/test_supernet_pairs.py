"""A pair's two outputs and its gradients are those of its two paths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from networks import PAPER, TRICKY, paper_network, tricky_network
from properties import tensors
from torch import nn

from bcnet.space import Side, WidthSpace
from bcnet.supernet import Supernet
from bcnet.supernet.pairs import Pairs, UnpairableError, worthwhile

COUPLED = {"ChannelsLast", "Attention", "ChannelConvolution", "Shuffles"}  # channels meet in their forward
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in PAPER if name != "resnet20"]
PAIRABLE = [*(name for name in TRICKY if name not in COUPLED), "resnet20", *LARGE]


def known(name: str) -> tuple[nn.Module, WidthSpace, torch.Tensor]:
    return (paper_network if name in PAPER else tricky_network)(name)


def some_full(space: WidthSpace, seed: int) -> tuple[int, ...]:
    """Random widths, every third group full."""
    widths = space.sample(torch.Generator().manual_seed(seed))
    return tuple(full if i % 3 == 2 else c for i, (c, full) in enumerate(zip(widths, space.full, strict=True)))


def loss_of(outputs: list[Any]) -> torch.Tensor:
    return sum((t.square().mean() for output in outputs for t in tensors(output)), torch.zeros(()))


@pytest.mark.parametrize("name", PAIRABLE)
def test_a_pair_is_its_two_paths_in_output_and_gradient(name: str) -> None:
    model, space, x = known(name)
    together, apart = Supernet(model, space), Supernet(model, space)
    pairs = Pairs.verified(together.network, space, x)
    for left in (space.sample(torch.Generator().manual_seed(1)), some_full(space, 2)):
        right = space.complement(left)
        got = pairs.forward(x, left, right)
        expected = apart(x, left, Side.LEFT), apart(x, right, Side.RIGHT)
        for a, b in zip(tensors(got), tensors(expected), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
        loss_of([*got]).backward()
        loss_of([*expected]).backward()
    largest = max(float(p.grad.abs().max()) for p in apart.parameters())
    for (name, a), b in zip(together.named_parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-6, atol=1e-9 * largest, msg=name)


@pytest.mark.parametrize("name", sorted(COUPLED))
def test_networks_whose_channels_meet_are_refused(name: str) -> None:
    model, space, x = tricky_network(name)
    with pytest.raises(UnpairableError, match="couples channels"):
        Pairs.verified(Supernet(model, space).network, space, x)


def test_a_pass_leaves_the_network_as_it_was() -> None:
    model, space, x = tricky_network("Gate")
    net = Supernet(model, space)
    before = {name: id(tensor) for name, tensor in net.named_parameters()}
    left = space.narrowest
    Pairs(net.network, space).forward(x, left, space.complement(left))
    assert {name: id(tensor) for name, tensor in net.named_parameters()} == before


def test_a_pair_is_disjoint_and_complete_or_full_twice() -> None:
    model, space, _ = paper_network("resnet20")
    pairs = Pairs(Supernet(model, space).network, space)
    widths = some_full(space, 0)
    assert pairs.disjoint(widths, space.complement(widths))
    assert pairs.disjoint(space.full, space.full)
    assert not pairs.disjoint(space.narrowest, space.narrowest)
    assert not pairs.disjoint(space.full, space.narrowest)


def test_narrow_networks_are_paired_and_wide_ones_are_not() -> None:
    assert worthwhile(paper_network("resnet20")[1])
    assert not worthwhile(paper_network("vgg19")[1])
    assert not worthwhile(paper_network("resnet50")[1])


def test_a_complement_that_overlaps_makes_no_pairs() -> None:
    model, _, x = paper_network("resnet20")
    space = WidthSpace.trace(model, x, min_ratio=0.25)
    with pytest.raises(UnpairableError, match="min_ratio"):
        Pairs.verified(Supernet(model, space).network, space, x)
