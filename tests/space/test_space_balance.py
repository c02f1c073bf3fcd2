"""Balanced widths: their balance, that nothing random does better, and that they satisfy any budget."""

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bcnet import Budget, Measure
from bcnet.errors import BudgetError, WidthError
from bcnet.models import create
from bcnet.space import WidthSpace
from bcnet.space.balance import optimum, weighted_layers

NETWORKS = ["vgg19_quarter", "resnet20", pytest.param("mobilenetv2", marks=pytest.mark.slow)]


@cache
def traced(name, multiple_of="fast"):
    spec = create(name)
    return WidthSpace.trace(spec.build(), torch.zeros(2, *spec.input_size), multiple_of=multiple_of)


@pytest.mark.parametrize("name", ["vgg19_quarter", "resnet20"])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_shares_of_the_multiply_adds_are_balanced_where_no_width_is_at_its_end(name, exponent):
    """The optimality condition: around every such group the layers' shares add up to their powers of the positions."""
    space = traced(name)
    limit = round(0.1 * space.reference.macs)
    layers = weighted_layers(space, exponent)
    real = optimum(space, layers, Budget(macs=limit), 1.0)
    inside = [
        n for n, (g, w) in enumerate(zip(space.groups, real, strict=True)) if 1.02 * g.unit < w < 0.98 * g.max_width
    ]
    assert len(inside) > 3
    macs = np.array([np.exp(log_macs(np.log(real))[0]) for _, log_macs in layers])
    assert macs.sum() == pytest.approx(limit, rel=1e-4)
    reading = np.array([log_macs(np.log(real))[1] for _, log_macs in layers])  # (layers, groups): how often
    shares = reading.T @ (macs / macs.sum())
    powers = reading.T @ np.array([weight for weight, _ in layers])
    ratios = (shares / powers)[inside]
    assert ratios == pytest.approx(np.full(len(inside), ratios.mean()), rel=1e-2)


@pytest.mark.parametrize(("exponent", "expected"), [(0.0, [1, 1, 1]), (1.0, [4, 1, 1]), (0.5, [2, 1, 1])])
def test_a_layer_has_a_share_by_the_power_of_its_positions(exponent, expected):
    def layer(into, out):
        return nn.Conv2d(into, out, 3, padding=1, bias=False)

    # Three branches of a layer each: nothing but the budget ties them.
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(layer(3, 256) for _ in range(3))

        def forward(self, x):
            small = nn.functional.avg_pool2d(x, 2)
            return [part(y).mean((1, 2, 3)) for part, y in zip(self.parts, (x, small, small), strict=True)]

    space = WidthSpace.trace(Branches(), torch.zeros(2, 3, 16, 16), multiple_of=1)
    widths = space.balanced(macs=0.1, exponent=exponent)
    macs = [layer.macs(np.array([widths]))[0] for layer in space.layers]
    assert [count / macs[-1] for count in macs] == pytest.approx(expected, rel=0.1)


def objective(space, widths, exponent):
    return sum(weight * log_macs(np.log(widths))[0] for weight, log_macs in weighted_layers(space, exponent))


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
@given(st.floats(0.05, 0.95), st.floats(0, 2), st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_no_other_widths_within_the_budget_do_better(name, ratio, exponent, seed):
    space = traced(name, multiple_of=1)
    limits = Budget(macs=ratio).resolve(space.reference)
    if not limits.admits(space.cost(tuple(g.unit for g in space.groups))):
        return
    widths = space.balanced(macs=ratio, exponent=exponent)
    space.check(widths)
    assert limits.admits(space.cost(widths))
    rng = np.random.default_rng(seed)
    best = objective(space, widths, exponent)
    try:
        others = [space.uniform(macs=ratio)]
    except BudgetError:
        others = []
    for _ in range(20):
        near = [
            int(np.clip(round(w * np.exp(0.2 * rng.normal()) / g.unit), 1, g.max_width // g.unit)) * g.unit
            for w, g in zip(widths, space.groups, strict=True)
        ]
        if limits.admits(space.cost(tuple(near))):
            others.append(tuple(near))
    assert all(objective(space, other, exponent) <= best + 0.02 for other in others)  # rounding to whole channels


@pytest.mark.parametrize("name", NETWORKS)
def test_the_budget_is_used_up_to_the_last_step(name):
    space = traced(name)
    for budget in (Budget(macs=0.5), Budget(params=0.3), Budget(macs=0.5, params=0.2)):
        widths = space.balanced(budget)
        limits = budget.resolve(space.reference)
        for number, group in enumerate(space.groups):
            wider = list(widths)
            wider[number] = group.wider(widths[number])
            assert widths[number] == group.max_width or not limits.admits(space.cost(tuple(wider)))


@dataclasses.dataclass(frozen=True)
class Widest(Measure):
    """The channels of the widest group: no polynomial."""

    name = "widest"
    unit = "channels"

    def values(self, space, widths):
        return np.max(widths, axis=1)

    def constraints(self, space):
        raise NotImplementedError


@pytest.mark.slow
def test_any_measure_can_be_the_limit():
    space = traced("vgg19_quarter")
    widths = space.balanced(Budget({Widest(): 60}, macs=0.9), exponent=1.0)
    assert max(widths) <= 60
    assert space.cost(widths).macs <= 0.9 * space.reference.macs
    tighter = [space.balanced(macs=ratio, exponent=1.0) for ratio in (0.1, 0.2, 0.3, 0.4)]
    admitted = [other for other in tighter if max(other) <= 60]
    assert admitted
    assert all(objective(space, other, 1.0) <= objective(space, widths, 1.0) + 0.02 for other in admitted)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_full_budget_gives_the_original(name):
    assert traced(name).balanced(macs=1.0) == traced(name).original_widths


@pytest.mark.parametrize("exponent", [-0.1, 2.5, "half", True, float("nan")])
def test_a_wrong_exponent_is_named(exponent):
    with pytest.raises(WidthError, match=r"exponent of balanced widths must be a number from 0 to 2; got"):
        traced("resnet20").balanced(macs=0.5, exponent=exponent)


def test_a_budget_below_the_narrowest_network_is_named():
    with pytest.raises(BudgetError, match="a budget must admit the narrowest network"):
        traced("resnet20").balanced(macs=1)
