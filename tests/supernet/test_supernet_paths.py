"""A path through the supernet is the built network, in output and in gradient."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from networks import PAPER, PAPER_CASES, TRICKY, batch_statistics, paper_network, tricky_network
from torch import nn

from bcnet.errors import WidthError
from bcnet.space import Side, WidthSpace
from bcnet.space.layout import spans
from bcnet.supernet import Supernet, build

NETWORKS = [*TRICKY, *PAPER_CASES]


def known(name: str) -> tuple[nn.Module, WidthSpace, torch.Tensor]:
    return (paper_network if name in PAPER else tricky_network)(name)


def free_widths(space: WidthSpace, generator: torch.Generator) -> tuple[int, ...]:
    """Any multiples of the units, not only choices."""
    return tuple(
        int(torch.randint(1, g.max_width // g.unit + 1, (), generator=generator)) * g.unit for g in space.groups
    )


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_path_equals_the_built_network(name: str, side: Side) -> None:
    model, space, x = known(name)
    net = Supernet(model, space)
    generator = torch.Generator().manual_seed(len(name))
    for widths in (space.full, space.narrowest, space.sample(generator), free_widths(space, generator)):
        network = batch_statistics(build(model, space, widths, weights=(net, side)))
        with torch.no_grad():
            torch.testing.assert_close(net(x, widths, side), network(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("name", [*TRICKY, "resnet20", pytest.param("mobilenetv2", marks=pytest.mark.slow)])
def test_gradients_equal_the_built_networks_and_accumulate(name: str, side: Side) -> None:
    model, space, x = known(name)
    net = Supernet(model, space)
    generator = torch.Generator().manual_seed(2)
    expected = {n: torch.zeros_like(p) for n, p in net.network.named_parameters()}
    for widths in (space.sample(generator), space.full):
        net(x, widths, side).square().sum().backward()
        network = build(model, space, widths, weights=(net, side))
        batch_statistics(network).train(net.training)
        network(x).square().sum().backward()
        for n, parameter in network.named_parameters():
            target = expected[n]
            for d, layout in enumerate(space.layouts.get(n, ())):
                index = torch.cat([torch.arange(s, s + k) for s, k in spans(layout, widths, side)])
                assert len(index) == parameter.shape[d]
            grid = [
                torch.cat([torch.arange(s, s + k) for s, k in spans(layout, widths, side)])
                for layout in space.layouts.get(n, ())
            ] or [torch.arange(k) for k in parameter.shape]
            target[torch.meshgrid(*grid, indexing="ij")] += parameter.grad
    for n, parameter in net.network.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[n], rtol=1e-8, atol=1e-8)


def test_the_supernet_has_a_copy_of_its_own_and_no_running_statistics() -> None:
    model, space, x = tricky_network("Residual")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    net = Supernet(model, space)
    for mode in (True, False):
        net.train(mode)(x, space.sample(torch.Generator().manual_seed(0)), Side.LEFT).sum().backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any("running" in name for name, _ in net.named_buffers())


def test_train_and_eval_mode_agree_where_nothing_is_random() -> None:
    model, space, x = tricky_network("Residual")
    net = Supernet(model, space)
    widths = space.sample(torch.Generator().manual_seed(4))
    torch.testing.assert_close(net.train()(x, widths, Side.LEFT), net.eval()(x, widths, Side.LEFT))


def test_a_path_leaves_the_full_network_as_it_was_even_when_it_fails() -> None:
    model, space, x = tricky_network("Groups")
    net = Supernet(model, space)
    full = net(x, space.full, Side.LEFT)
    with pytest.raises(RuntimeError):
        net(x[:, :2], space.narrowest, Side.RIGHT)
    torch.testing.assert_close(batch_statistics(net.network)(x), full)
    assert net.network.grouped.groups == 4


def test_bad_widths_sides_and_models_say_so() -> None:
    model, space, x = tricky_network("Residual")
    net = Supernet(model, space)
    with pytest.raises(WidthError, match="got 9"):
        net(x, (9, 1), Side.LEFT)
    with pytest.raises(WidthError, match=r"Side.LEFT or Side.RIGHT; got 'left'"):
        net(x, space.full, "left")
    with pytest.raises(WidthError, match=r"'stem.weight' has shape \(8, 3, 3, 3\) in the space; got \(8, 3, 1, 1\)"):
        Supernet(TRICKY["Depthwise"](), space)


def test_threads_take_turns_on_one_supernet() -> None:
    """A mapper of threads scores candidates of one set of weights: each output is that of its own widths."""
    model, space, x = paper_network("resnet20")
    net = Supernet(model, space)
    generator = torch.Generator().manual_seed(5)
    paths = [(space.sample(generator), side) for side in Side for _ in range(8)]
    with torch.no_grad():
        expected = [net(x, widths, side) for widths, side in paths]
        with ThreadPoolExecutor(4) as threads:
            got = list(threads.map(lambda path: net(x, *path), paths))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
