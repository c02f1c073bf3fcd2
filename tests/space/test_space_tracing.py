"""Tracing finds the groups a network has, counts its costs exactly, and says what it holds at full width and why."""

import copy

import pytest
import torch
from networks import PAPER, TRICKY, paper_network, tricky_network
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bcnet.errors import TraceError
from bcnet.space import Side, WidthSpace
from bcnet.supernet import Supernet, build

LARGE = ("resnet50", "mobilenetv2", "mobilenet_v2", "efficientnet_b0")
QUICK = ("vgg19_quarter", "resnet20", "resnet18")  # built in three widths


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in PAPER]
)
def test_paper_networks_have_the_groups_and_costs_of_the_paper(name: str) -> None:
    known = PAPER[name]
    model = known.factory()
    space = WidthSpace.trace(model, torch.zeros(2, 3, known.size, known.size))
    assert len(space.groups) == known.groups
    assert space.reference.macs == pytest.approx(known.mega_macs * 1e6, rel=0.01)
    assert space.reference.params == pytest.approx(known.mega_params * 1e6, rel=0.01)
    assert space.reference.params == sum(p.numel() for p in model.parameters())
    assert {f.reason for f in space.fixed} == {"the network's input", "the network's output"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "efficientnet_b0"])
def test_the_groups_do_not_depend_on_the_size_of_the_images(name: str) -> None:
    _, space, _ = paper_network(name)  # at 64 pixels
    assert len(space.groups) == PAPER[name].groups
    assert space.reference.params == pytest.approx(PAPER[name].mega_params * 1e6, rel=0.01)
    assert {f.reason for f in space.fixed} == {"the network's input", "the network's output"}


@pytest.mark.parametrize("name", TRICKY)
def test_tricky_networks_have_the_groups_they_declare(name: str) -> None:
    model, space, _ = tricky_network(name)
    assert {group.name: group.max_width for group in space.groups} == model.expected


def _independent_cost(network: nn.Module, x: torch.Tensor) -> tuple[int, int]:
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        network.eval()(x[:1])
    return counter.get_total_flops() // 2, sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(
    "name", [*TRICKY, *(pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in PAPER)]
)
def test_cost_equals_an_independent_counter(name: str) -> None:
    model, space, x = (paper_network if name in PAPER else tricky_network)(name)
    generator = torch.Generator().manual_seed(1)
    for widths in (space.full, space.narrowest, space.sample(generator)):
        network = build(model, space, widths)
        assert tuple(space.cost(widths)) == _independent_cost(network, x), widths


def test_tracing_does_not_change_the_model() -> None:
    model = TRICKY["Residual"]()
    model.norm.eval()  # a mixture of modes is the user's business
    before = copy.deepcopy(model)
    WidthSpace.trace(model, torch.randn(4, 3, 16, 16))
    assert [p.training for p in model.modules()] == [p.training for p in before.modules()]
    for (name, tensor), (_, old) in zip(model.state_dict().items(), before.state_dict().items(), strict=True):
        assert torch.equal(tensor, old), name


def test_a_batch_of_one_traces_like_any_other() -> None:
    model = TRICKY["Flatten"]()
    assert (
        WidthSpace.trace(model, torch.randn(1, 3, 16, 16)).fingerprint()
        == WidthSpace.trace(model, torch.randn(3, 3, 16, 16)).fingerprint()
    )


def test_what_is_held_names_the_reason_and_the_place() -> None:
    _, space, _ = tricky_network("StoredNumber")
    held = next(f for f in space.fixed if f.name == "stem.weight" and f.dim == 0)
    assert "breaks at other widths" in held.reason
    assert "networks.py, line" in held.where
    _, space, _ = tricky_network("PickedChannels")
    held = next(f for f in space.fixed if f.name == "stem.weight" and f.dim == 0)
    assert "a part from 2 to 6 of 4 channels" in held.reason
    assert "networks.py, line" in held.where


class SplitAtNumbers(nn.Module):
    """The parts are equal, as a gate's would be, but their sizes stand in the code."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.last = nn.Conv2d(4, 6, 1)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.stem(x).split([4, 4], dim=1)
        return self.head(torch.relu(self.last(a * b)).mean((2, 3)))


def test_trying_out_what_breaks_leaves_the_log_alone(capfd: pytest.CaptureFixture[str]) -> None:
    space = WidthSpace.trace(SplitAtNumbers(), torch.randn(2, 3, 16, 16))
    assert [group.name for group in space.groups] == ["last"]
    assert capfd.readouterr().err == ""


class Unknown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.last = nn.Conv2d(8, 6, 1)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.last(self.stem(x).renorm(2, 1, 1.0))).mean((2, 3)))


def test_an_operator_without_a_rule_holds_what_it_touches_and_says_so() -> None:
    space = WidthSpace.trace(Unknown(), torch.randn(2, 3, 8, 8))
    assert [group.name for group in space.groups] == ["last"]
    held = next(f for f in space.fixed if f.name == "stem.weight" and f.dim == 0)
    assert held.reason == "no rule for operator aten.renorm.default"
    assert "test_space_tracing.py, line" in held.where


class AuxiliaryHead(nn.Module):
    """The auxiliary head exists in training mode only; its channels must be sliced all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.head = nn.Linear(8, 5)
        self.aux = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        x = torch.relu(self.stem(x)).mean((2, 3))
        return (self.head(x), self.aux(x)) if self.training else self.head(x)


def test_auxiliary_heads_of_training_are_sliced_but_not_counted() -> None:
    model = AuxiliaryHead()
    x = torch.randn(2, 3, 4, 4)
    space = WidthSpace.trace(model, x)
    assert space.reference.macs == 3 * 8 * 16 + 8 * 5
    assert space.reference.params == sum(p.numel() for p in model.parameters())
    outputs = Supernet(model, space).train()(x, (3,), Side.RIGHT)
    assert [tuple(o.shape) for o in outputs] == [(2, 5), (2, 5)]


@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (nn.Conv2d(3, 8, 1), torch.randn(2, 5, 8, 8), r"shape \(2, 5, 8, 8\).*running it failed.*check the shape"),
        (nn.Conv2d(3, 8, 1), torch.randn(2, 3, 8, 8), r"needs a layer whose width can change.*network's output"),
        (nn.ReLU(), torch.randn(2, 3, 8, 8), "no convolution or linear layer"),
        (
            nn.Linear(3, 8),
            torch.randn(3),
            r"example input must be a tensor \(batch, channels, ...\), or .*; got \(3,\)",
        ),
        (nn.Conv2d(3, 8, 1), [1, 2], "example input must be a tensor.*got list"),
        ("resnet", torch.randn(2, 3, 8, 8), "needs a torch.nn.Module; got str"),
    ],
)
def test_models_that_cannot_be_traced_say_why(model: nn.Module, x: torch.Tensor, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        WidthSpace.trace(model, x)
