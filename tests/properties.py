"""What must hold for every network that traces, checked in one go."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import torch
from networks import batch_statistics
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from bcnet.space import Side, WidthSpace
from bcnet.space.layout import spans
from bcnet.supernet import Supernet, build


def tensors(output: Any) -> list[torch.Tensor]:
    """The tensors of any output: a tensor, a tuple, a dict."""
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def free_widths(space: WidthSpace, generator: torch.Generator) -> tuple[int, ...]:
    """Any multiples of the units, not only choices."""
    return tuple(
        int(torch.randint(g.least // g.unit, g.max_width // g.unit + 1, (), generator=generator)) * g.unit
        for g in space.groups
    )


def independent_cost(network: nn.Module, x: torch.Tensor) -> tuple[int, int]:
    """MACs and parameters of a plain network as torch's own counter sees them.

    It counts fused attention as nothing on a CPU, so attention is computed by matrix products.
    """
    counter = FlopCounterMode(display=False)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            network.eval()(x)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    macs = counter.get_total_flops() // 2
    return macs // len(x), sum(p.numel() for p in network.parameters())


def check_path_equals_built(model: nn.Module, space: WidthSpace, x: torch.Tensor, widths: tuple[int, ...]) -> None:
    """Output and gradients of both paths at `widths` are those of the built network; so are the costs."""
    for side in Side:
        net = Supernet(model, space).eval()
        network = build(model, space, widths, weights=(net, side))
        assert tuple(space.cost(widths)) == independent_cost(copy.deepcopy(network), x)
        batch_statistics(network)
        got, expected = tensors(net(x, widths, side)), tensors(network(x))
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
        for outputs in (got, expected):
            sum(t.square().mean() for t in outputs if t.requires_grad).backward()
        check_gradients(net, network, space, widths, side)


def check_gradients(net: Supernet, network: nn.Module, space: WidthSpace, widths: tuple[int, ...], side: Side) -> None:
    """The supernet's gradients are the built network's in the path's slices, and zero elsewhere."""
    narrow = dict(network.named_parameters())
    for name, parameter in net.network.named_parameters():
        if parameter.grad is None or narrow[name].grad is None:
            assert parameter.grad is None or not parameter.grad.any(), name
            assert narrow[name].grad is None or not narrow[name].grad.any(), name
            continue
        grid = [
            torch.cat([torch.arange(start, start + size) for start, size in spans(layout, widths, side)])
            for layout in space.layouts.get(name, ())
        ] or [torch.arange(size) for size in parameter.shape]
        expected = torch.zeros_like(parameter)
        expected[torch.meshgrid(*grid, indexing="ij")] = narrow[name].grad
        scale = float(expected.abs().max()) + 1e-12
        torch.testing.assert_close(parameter.grad / scale, expected / scale, rtol=1e-6, atol=1e-8, msg=name)


def check_plain_module(model: nn.Module, space: WidthSpace, x: torch.Tensor, widths: tuple[int, ...]) -> None:
    """A built network is a module like any other: both modes, copies, pickles and exports."""
    network = build(model, space, widths)
    assert type(network) is type(model)
    check_layers(space, widths)
    for mode in (True, False):
        shapes = [t.shape for t in tensors(copy.deepcopy(model).train(mode)(x))]
        assert [t.shape for t in tensors(network.train(mode)(x))] == shapes
    with torch.no_grad():
        expected = tensors(network.eval()(x))
        for copied in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
            for a, b in zip(tensors(copied(x)), expected, strict=True):
                torch.testing.assert_close(a, b)
        exported = torch.export.export(network, (x,)).module()
        for a, b in zip(tensors(exported(x)), expected, strict=True):
            torch.testing.assert_close(a, b)


def check_layers(space: WidthSpace, widths: tuple[int, ...]) -> None:
    """The costs of the layers add up to those of the network."""
    table = np.array([widths])
    macs = sum(int(layer.macs(table)[0]) for layer in space.layers)
    params = sum(int(layer.params(table)[0]) for layer in space.layers)
    assert (macs, params) == tuple(space.cost(widths))


def check_network(model: nn.Module, x: torch.Tensor, seed: int = 0) -> WidthSpace:
    """All of the above, at random widths."""
    space = WidthSpace.trace(model, x)
    generator = torch.Generator().manual_seed(seed)
    check_path_equals_built(model, space, x, free_widths(space, generator))
    check_plain_module(model, space, x, space.sample(generator))
    return space
