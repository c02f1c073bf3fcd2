"""Widths read off pruned networks."""

import copy

import pytest
import torch
from torch import nn

import bcnet
from bcnet.errors import BudgetError, ModelError
from bcnet.pruners import depgraph_pruned, fastnas_widths, read_widths
from bcnet.pruners.fastnas import _flops
from bcnet.space import Side
from bcnet.supernet import by_importance, reorder


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
        assert read_widths(bcnet.supernet.build(model, space, widths), space) == widths


def test_layers_of_a_group_that_disagree_are_named(traced):
    model, space = traced
    pruned = copy.deepcopy(model)
    pruned.back = nn.Conv2d(16, 7, 1)
    with pytest.raises(ModelError, match=r"the same channels; in group 'stem'.* 7 in back.weight"):
        read_widths(pruned, space)
    pruned.back = None
    with pytest.raises(ModelError, match="must keep the names of its tensors; got none called 'back"):
        read_widths(pruned, space)


def test_what_is_held_must_not_be_pruned(traced):
    model, space = traced
    pruned = bcnet.supernet.build(model, space, (6, 8))
    pruned.head = nn.Linear(6, 4)
    with pytest.raises(ModelError, match=r"'head\.\w+' would have shape .* and has"):
        read_widths(pruned, space)


def test_a_network_that_the_package_cannot_prune_is_named(traced, monkeypatch):
    pytest.importorskip("torch_pruning", reason="the extra 'magnitude' is not installed")
    monkeypatch.setattr("torch_pruning.pruner.BasePruner.step", lambda self: 1 // 0)
    with pytest.raises(ModelError, match=r"Residual failed in it with ZeroDivisionError: .*: take another baseline"):
        depgraph_pruned(*traced, bcnet.Budget(macs=0.5), torch.zeros(2, 3, 4, 4))


def test_magnitude_pruning_removes_the_weakest_channels_under_the_budget(traced):
    pytest.importorskip("torch_pruning", reason="the extra 'magnitude' is not installed")
    model, space = copy.deepcopy(traced[0]), traced[1]
    with torch.no_grad():
        for part in model.inside[0], model.inside[1]:
            part.weight[4:] *= 1e-3
            part.bias[4:] *= 1e-3
        model.back.weight[:, 4:] *= 1e-3
    before = copy.deepcopy(model.state_dict())
    widths = depgraph_pruned(model, space, bcnet.Budget(macs=0.5), torch.zeros(2, 3, 4, 4)).widths
    assert space.cost(widths).macs <= 0.5 * space.reference.macs
    assert widths[1] / 16 < widths[0] / 12  # the inside of the block is what nothing hangs on
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(BudgetError, match="must reach the budget, 10 MACs; Torch-Pruning stopped at"):
        depgraph_pruned(model, space, bcnet.Budget(macs=10), torch.zeros(2, 3, 4, 4))


@pytest.mark.parametrize("options", [{}, {"min_ratio": 0.25}, {"min_ratio": 0.5}, {"choices": {"inside.0": [7, 16]}}])
def test_magnitude_pruning_keeps_the_narrowest_choice_of_every_layer(traced, options):
    pytest.importorskip("torch_pruning", reason="the extra 'magnitude' is not installed")
    model, example = copy.deepcopy(traced[0]), torch.zeros(2, 3, 4, 4)
    with torch.no_grad():
        for part in model.inside[0], model.inside[1]:
            part.weight[1:] *= 1e-6  # beside the first of their layer all are weaker than any other
    space = bcnet.WidthSpace.trace(model, example, **options)
    narrowest = tuple(group.choices[0] for group in space.groups)
    least = space.cost(narrowest).macs
    for macs in (least, int(1.2 * least), int(0.9 * space.reference.macs)):
        widths = depgraph_pruned(model, space, bcnet.Budget(macs=macs), example).widths
        assert space.cost(widths).macs <= macs
        assert all(width >= low for width, low in zip(widths, narrowest, strict=True))


@pytest.mark.parametrize("by_taylor", [False, True])
def test_the_channels_it_keeps_make_the_very_network_that_it_leaves(traced, monkeypatch, by_taylor):
    torch_pruning = pytest.importorskip("torch_pruning", reason="the extra 'magnitude' is not installed")
    model, example = copy.deepcopy(traced[0]).eval(), torch.randn(4, 3, 4, 4)
    space = bcnet.WidthSpace.trace(model, example)
    left = []
    step = torch_pruning.pruner.BasePruner.step
    monkeypatch.setattr(
        "torch_pruning.pruner.BasePruner.step", lambda self: (step(self), left.append(copy.deepcopy(self.model)))
    )
    loss = (lambda network: network(example).square().mean()) if by_taylor else None
    pruned = depgraph_pruned(model, space, bcnet.Budget(macs=0.5), example, loss=loss)
    assert [len(kept) for kept in pruned.kept] == list(pruned.widths), "nothing was below the narrowest choice"
    orders = [
        (*kept, *(c for c in order if c not in kept))
        for kept, order in zip(pruned.kept, by_importance(model, space), strict=True)
    ]
    ours = reorder(model, space, orders, example)
    built = bcnet.supernet.build(ours, space, pruned.widths, weights=(bcnet.Supernet(ours, space), Side.LEFT))
    for network in (built, left[-1]):
        bcnet.supernet.recalibrate(network, [example])
    torch.testing.assert_close(built(example), left[-1](example))


def test_taylor_terms_keep_what_the_loss_depends_on(traced):
    pytest.importorskip("torch_pruning", reason="the extra 'magnitude' is not installed")
    model, space = traced
    examples = torch.randn(4, 3, 4, 4)

    def loss(network):  # of the stem's last channels, whatever their weights
        return network.stem(examples)[:, -3:].square().sum() + 1e-6 * network(examples).square().mean()

    pruned = depgraph_pruned(model, space, bcnet.Budget(macs=0.6), examples, loss=loss)
    assert {9, 10, 11} <= set(pruned.kept[0])
    by_norm = depgraph_pruned(model, space, bcnet.Budget(macs=0.6), examples)
    assert pruned.widths != by_norm.widths


@pytest.mark.slow
@pytest.mark.parametrize("min_ratio", [0.0, 0.25, 0.5])
def test_fastnas_keeps_the_narrowest_choice_of_every_layer(min_ratio):
    for module in ("modelopt", "torchprofile", "requests", "huggingface_hub"):
        pytest.importorskip(module, reason="the extra 'fastnas' is not installed")
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(24, 5),
    )  # fmt: skip
    example = torch.zeros(1, 3, 8, 8)
    space = bcnet.WidthSpace.trace(model, example, min_ratio=min_ratio, multiple_of=1)  # as FastNAS cuts
    narrowest = space.groups[0].choices[0]  # the last convolution it takes for one that must stay
    widths = fastnas_widths(
        model,
        space,
        bcnet.Budget(macs=round(1.1 * space.cost((narrowest, 24)).macs)),
        example,
        calibration=lambda: [torch.randn(4, 3, 8, 8)],
        score=lambda network: 50.0,  # nothing is lost by taking any channel
    )
    assert widths[0] >= narrowest


class Upsampled(nn.Module):
    """A strided transposed convolution and padding by a word, which torchprofile counts wrongly."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
        self.same = nn.Sequential(nn.Conv2d(32, 32, 3, padding="same"), nn.BatchNorm2d(32), nn.ReLU())
        self.up = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.last = nn.Conv2d(16, 16, 3)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.last(self.up(self.same(self.down(x)))).mean((2, 3)))


@pytest.mark.slow
def test_fastnas_meets_the_budget_by_our_count():
    for module in ("modelopt", "torchprofile", "requests", "huggingface_hub"):
        pytest.importorskip(module, reason="the extra 'fastnas' is not installed")
    model, example = Upsampled(), torch.zeros(1, 3, 16, 16)
    space = bcnet.WidthSpace.trace(model, example)

    def score(network):
        """What is lost by narrowing a layer is what it computed."""
        return 50 * _flops(network, example, unit=1.0) / space.reference.macs

    widths = fastnas_widths(
        model,
        space,
        bcnet.Budget(macs=0.5),
        example,
        calibration=lambda: [torch.randn(4, 3, 16, 16)],
        score=score,
    )
    assert 0.4 < space.cost(widths).macs / space.reference.macs <= 0.5


def test_flops_are_twice_the_multiply_adds_of_the_space():
    model, example = Upsampled(), torch.zeros(1, 3, 16, 16)
    space = bcnet.WidthSpace.trace(model, example)
    assert _flops(model, (example, {}), unit=1.0) == 2 * space.reference.macs
    assert _flops(model, example, unit=1e6) == pytest.approx(2e-6 * space.reference.macs)
    assert model.training
