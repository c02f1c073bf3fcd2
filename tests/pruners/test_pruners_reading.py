"""Widths read off pruned networks."""

import copy

import pytest
import torch
from torch import nn

import bcnet
from bcnet.errors import BudgetError, ModelError
from bcnet.pruners import magnitude_widths, read_widths


class Residual(nn.Module):
    """Groups: stem with both ends of the block, the block's inside; a depthwise convolution shares the first."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, padding=1)
        self.inside = nn.Sequential(nn.Conv2d(12, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.back = nn.Conv2d(16, 12, 1)
        self.depthwise = nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.head = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        return self.head(self.depthwise(y + self.back(self.inside(y))).mean((2, 3)))


@pytest.fixture(scope="module")
def traced():
    torch.manual_seed(0)
    model = Residual()
    return model, bcnet.WidthSpace.trace(model, torch.zeros(2, 3, 4, 4))


def test_widths_of_a_built_network_are_read_back(traced):
    model, space = traced
    for widths in ((12, 16), (5, 3), (1, 16)):
        assert read_widths(bcnet.build(model, space, widths), space) == widths


def test_layers_of_a_group_that_disagree_are_named(traced):
    model, space = traced
    pruned = copy.deepcopy(model)
    pruned.back = nn.Conv2d(16, 7, 1)
    with pytest.raises(ModelError, match=r"the same channels; in group 'stem'.* 7 in back.weight"):
        read_widths(pruned, space)
    pruned.back = None
    with pytest.raises(ModelError, match="keeps the names of its tensors; got none called 'back"):
        read_widths(pruned, space)


def test_what_is_held_must_not_be_pruned(traced):
    model, space = traced
    pruned = bcnet.build(model, space, (6, 8))
    pruned.head = nn.Linear(6, 4)
    with pytest.raises(ModelError, match=r"'head\.\w+' would have shape .* and has"):
        read_widths(pruned, space)


def test_a_network_that_the_package_cannot_prune_is_named(traced, monkeypatch):
    pytest.importorskip("torch_pruning", reason="the extra 'magnitude' is not installed")
    monkeypatch.setattr("torch_pruning.pruner.BasePruner.step", lambda self: 1 // 0)
    with pytest.raises(ModelError, match=r"Residual failed in it with ZeroDivisionError: .*: take another baseline"):
        magnitude_widths(*traced, bcnet.Budget(macs=0.5), torch.zeros(2, 3, 4, 4))


def test_magnitude_pruning_removes_the_weakest_channels_under_the_budget(traced):
    pytest.importorskip("torch_pruning", reason="the extra 'magnitude' is not installed")
    model, space = copy.deepcopy(traced[0]), traced[1]
    with torch.no_grad():
        for part in model.inside[0], model.inside[1]:
            part.weight[4:] *= 1e-3
            part.bias[4:] *= 1e-3
        model.back.weight[:, 4:] *= 1e-3
    before = copy.deepcopy(model.state_dict())
    widths = magnitude_widths(model, space, bcnet.Budget(macs=0.5), torch.zeros(2, 3, 4, 4))
    assert space.cost(widths).macs <= 0.5 * space.reference.macs
    assert widths[1] / 16 < widths[0] / 12  # the inside of the block is what nothing hangs on
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(BudgetError, match="must reach the budget, 10 MACs; Torch-Pruning stopped at"):
        magnitude_widths(model, space, bcnet.Budget(macs=10), torch.zeros(2, 3, 4, 4))
