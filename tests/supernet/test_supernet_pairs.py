"""A pair's two outputs and its gradients are those of its two paths."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from networks import PAPER, TRICKY, paper_network, tricky_network
from properties import tensors
from torch import nn

from bcnet.space import Side, WidthSpace
from bcnet.supernet import Supernet
from bcnet.supernet.pairs import Pairs, UnpairableError, are_worthwhile

COUPLED = {"ChannelsLast", "Attention", "ChannelConvolution", "Shuffles"}  # channels meet in their forward
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in PAPER if name != "resnet20"]
PAIRABLE = [*(name for name in TRICKY if name not in COUPLED), "resnet20", *LARGE]


def known(name: str) -> tuple[nn.Module, WidthSpace, torch.Tensor]:
    return (paper_network if name in PAPER else tricky_network)(name)


def distance(ones: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    """The mean over tensors of their distance, relative to the norm of the other."""
    return float(torch.stack([(a - b).norm() / b.norm() for a, b in zip(ones, others, strict=True)]).mean())


def some_full(space: WidthSpace, seed: int) -> tuple[int, ...]:
    """Random widths, every third group full."""
    widths = space.sample(torch.Generator().manual_seed(seed))
    return tuple(full if i % 3 == 2 else c for i, (c, full) in enumerate(zip(widths, space.full, strict=True)))


def loss_of(outputs: list[Any]) -> torch.Tensor:
    return sum((t.square().mean() for output in outputs for t in tensors(output)), torch.zeros(()))


@pytest.mark.parametrize("name", PAIRABLE)
def test_a_pair_is_its_two_paths_in_output_and_gradient(name: str) -> None:
    check_against_paths(*known(name))


@pytest.mark.parametrize("name", PAIRABLE)
def test_so_is_a_pair_that_overlaps(name: str) -> None:
    model, _, x = known(name)
    check_against_paths(model, WidthSpace.trace(model, x, min_ratio=0.25), x, bounded=True)


def check_against_paths(model: nn.Module, space: WidthSpace, x: torch.Tensor, *, bounded: bool = False) -> None:
    together, apart = Supernet(model, space), Supernet(model, space)
    pairs = Pairs.verify(together.network, space, x)
    for left in (space.sample(torch.Generator().manual_seed(1)), some_full(space, 2)):
        right = space.complement(left, bounded=bounded)
        got = pairs.forward(x, left, right)
        expected = apart(x, left, Side.LEFT), apart(x, right, Side.RIGHT)
        for a, b in zip(tensors(got), tensors(expected), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
        loss_of([*got]).backward()
        loss_of([*expected]).backward()
    largest = max(float(p.grad.abs().max()) for p in apart.parameters())
    for (name, a), b in zip(together.named_parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-6, atol=1e-9 * largest, msg=name)


def test_under_autocast_a_pair_is_what_its_two_paths_are() -> None:
    model, _, x = known("resnet20")
    model, x = copy.deepcopy(model).float(), x.float()
    space = WidthSpace.trace(model, x)
    together, apart, exact = (Supernet(model, space) for _ in range(3))
    left = some_full(space, 2)
    with torch.autocast("cpu", torch.bfloat16):
        got = Pairs.verify(together.network, space, x).forward(x, left, right := space.complement(left))
        expected = apart(x, left, Side.LEFT), apart(x, right, Side.RIGHT)
    for a, b in zip(tensors(got), tensors(expected), strict=True):
        assert a.dtype is torch.bfloat16
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.05 * float(b.detach().abs().max()))
    outputs = (got, expected, (exact(x, left, Side.LEFT), exact(x, right, Side.RIGHT)))
    for both in outputs:
        loss_of([*both]).backward()
    gradients = [[parameter.grad for parameter in network.parameters()] for network in (together, apart, exact)]
    assert all(gradient.dtype is torch.float32 for gradient in gradients[0])
    # How much bf16 rounds depends on the processor: a pair is as near to fp32 as its paths are, and nearer to them.
    errors = [distance(gradients[0], gradients[2]), distance(gradients[1], gradients[2])]
    assert errors[0] < 1.2 * errors[1] < 1.2
    assert distance(gradients[0], gradients[1]) < errors[1]


@pytest.mark.parametrize("name", sorted(COUPLED))
def test_networks_whose_channels_meet_are_refused(name: str) -> None:
    model, space, x = tricky_network(name)
    with pytest.raises(UnpairableError, match="couples channels"):
        Pairs.verify(Supernet(model, space).network, space, x)


def test_a_pass_leaves_the_network_as_it_was() -> None:
    model, space, x = tricky_network("Gate")
    net = Supernet(model, space)
    before = {name: id(tensor) for name, tensor in net.named_parameters()}
    left = space.narrowest
    Pairs(net.network, space).forward(x, left, space.complement(left))
    assert {name: id(tensor) for name, tensor in net.named_parameters()} == before


def test_a_pair_is_two_paths_that_are_complements() -> None:
    model, space, x = paper_network("resnet20")
    pairs = Pairs(Supernet(model, space).network, space)
    widths = some_full(space, 0)
    assert pairs.complementary(widths, space.complement(widths))
    assert pairs.complementary(space.full, space.full)
    assert not pairs.complementary(space.narrowest, space.narrowest)
    assert pairs.complementary(widths, space.complement(widths, bounded=True))
    assert not pairs.complementary(space.full, space.nearest([c // 2 for c in space.full]))
    bounded = WidthSpace.trace(model, x, min_ratio=0.25)
    assert Pairs(Supernet(model, bounded).network, bounded).complementary(bounded.full, bounded.narrowest)


@pytest.mark.parametrize(
    ("name", "batch", "paired"),
    [
        ("resnet20", 128, True),
        ("resnet20", 2048, True),  # narrow
        ("vgg19_quarter", 128, True),  # little to do in its layers
        pytest.param("resnet50", 96, True, marks=pytest.mark.slow),  # of 64 pixels
        pytest.param("resnet50", 512, False, marks=pytest.mark.slow),
        pytest.param("mobilenetv2", 256, True, marks=pytest.mark.slow),
        ("vgg19", 32, False),  # few layers and many parameters
    ],
)
def test_networks_are_paired_where_that_is_less_than_new_shapes_in_every_layer(
    name: str, batch: int, paired: bool
) -> None:
    assert are_worthwhile(paper_network(name)[1], batch) == paired
