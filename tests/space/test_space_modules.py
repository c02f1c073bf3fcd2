"""What people's modules are made of beside layers: plain tensors, shared modules, computed weights, checkpoints."""

import copy
import re

import pytest
import torch
from properties import check_network, check_path_equals_built, free_widths
from tiny_job import TinyNetwork, tiny_search
from torch import nn
from torch.utils.checkpoint import checkpoint

from bcnet.errors import ModelError, TraceError
from bcnet.space import Side, WidthSpace
from bcnet.supernet import Supernet, build


class Around(nn.Module):
    """Something between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.block(3, 8)
        self.last, self.head = self.block(8, 6), nn.Linear(6, 3)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.between(self.first(x))).mean((2, 3)))


class PlainTensors(Around):
    """Tensors that are neither parameters nor buffers, as YOLO's strides."""

    def __init__(self) -> None:
        super().__init__()
        self.stride = torch.tensor([2.0], dtype=torch.float64)
        self.boxes = [torch.rand(4, dtype=torch.float64), {"more": torch.rand(2, dtype=torch.float64)}]

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.stride + self.boxes[0].sum() + self.boxes[1]["more"].mean()


class Keeping(Around):
    """What it computes of a shape it keeps for the next input of that shape, as YOLO's anchors in evaluation."""

    shape = None

    def between(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training and self.shape != x.shape[2:]:
            self.shape = x.shape[2:]
            self.ramp = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device) + 1
        return x if self.training else x * self.ramp


class TwoNames(Around):
    """Modules that are registered twice, as nnU-Net's."""

    def __init__(self) -> None:
        super().__init__()
        self.all = nn.ModuleList([self.first, self.last])
        self.again = self.first[1]


class Frozen(Around):
    """A filter that is no weight: bit for bit what it was, in paths and built networks."""

    def __init__(self) -> None:
        super().__init__()
        self.sobel = nn.Parameter(torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]), requires_grad=False)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        kernel = self.sobel[None, None].expand(x.shape[1], 1, 3, 3)
        return nn.functional.conv2d(x, kernel, padding=1, groups=x.shape[1])


@pytest.mark.parametrize("network", [PlainTensors, TwoNames, Keeping])
def test_modules_of_any_make_keep_every_property(network) -> None:
    space = check_network(network().double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert [g.max_width for g in space.groups] == [8, 6]


class TwoNamesBeside(Around):
    """A layer of two names that reads two groups side by side, as the decoder of MONAI's DynUNet does."""

    def __init__(self) -> None:
        super().__init__()
        self.second, self.last = self.block(8, 10), self.block(18, 6)
        self.all = nn.ModuleList([self.last, self.second])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        return self.head(self.last(torch.cat([first, self.second(first)], 1)).mean((2, 3)))


def test_a_layer_of_two_names_beside_others_is_narrowed_once() -> None:
    space = check_network(TwoNamesBeside().double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert sorted(g.max_width for g in space.groups) == [6, 8, 10]


class Checkpointed(Around):
    """Activations that are computed again in the backward pass, as in torchvision's DenseNet."""

    reentrant = False

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.block(8, 10)
        self.last = self.block(10, 6)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


class CheckpointedOfOld(Checkpointed):
    reentrant = True


class WeightNorm(Around):
    """A weight that is computed from others: of length `g` and direction `v`."""

    computed = staticmethod(nn.utils.parametrizations.weight_norm)
    groups = 1

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.computed(nn.Conv2d(8, 8, 3, padding=1, groups=self.groups))

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class GroupedWeightNorm(WeightNorm):
    groups = 8


class SpectralNorm(WeightNorm):
    computed = staticmethod(nn.utils.parametrizations.spectral_norm)


class SpectralNormOfOld(WeightNorm):
    computed = staticmethod(nn.utils.spectral_norm)


NAMES = {"Checkpointed": "inner.0", "CheckpointedOfOld": "inner.0"}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.spectral_norm` is deprecated", "ignore:None of the inputs")
@pytest.mark.parametrize(
    "network", [Checkpointed, CheckpointedOfOld, WeightNorm, GroupedWeightNorm, SpectralNorm, SpectralNormOfOld]
)
def test_paths_equal_built_networks_whatever_computes_the_weights_or_keeps_activations(network) -> None:
    torch.manual_seed(0)
    model, x = network().double(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    space = WidthSpace.trace(model, x)
    names = [g.name for g in space.groups]
    assert len(names) == len(set(names))
    if network is not GroupedWeightNorm:  # depthwise: the channels are those of the layer before
        assert NAMES.get(network.__name__, "inner") in names
    for seed in range(3):
        widths = free_widths(space, torch.Generator().manual_seed(seed))
        check_path_equals_built(copy.deepcopy(model), space, x, widths)


def test_checkpoints_are_back_after_a_path() -> None:
    model, x = Checkpointed(), torch.randn(2, 3, 8, 8)
    before = vars(torch.utils.checkpoint).copy()
    Supernet(model, WidthSpace.trace(model, x))(x, (3, 3, 3), Side.LEFT)
    assert vars(torch.utils.checkpoint) == before


def test_a_filter_without_gradient_stays_what_it_was() -> None:
    model, x = Frozen(), torch.randn(2, 3, 8, 8)
    space = WidthSpace.trace(model, x)
    for network in (build(model, space, space.narrowest), Supernet(model, space).network):
        assert torch.equal(network.sobel, model.sobel)


def test_weight_norm_of_old_is_refused_with_what_to_take() -> None:
    with pytest.warns(FutureWarning):
        model = nn.Sequential(nn.utils.weight_norm(nn.Conv2d(3, 8, 3)), nn.Conv2d(8, 4, 3))
    with pytest.raises(
        TraceError, match=r"a network must be copied.*torch.nn.utils.parametrizations.weight_norm, its successor"
    ):
        WidthSpace.trace(model, torch.randn(2, 3, 8, 8))


class Masked(Around):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * x[x > 0].mean()


class Nonzero(Around):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :, :, (x.mean((0, 1, 2)) > 0).nonzero()[:, 0]]


class Undecided(Around):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x))[x[:, :1].expand(-1, 6, -1, -1) > 0]


def test_what_the_data_decide_is_pinned_named_or_refused() -> None:
    x = torch.randn(2, 3, 8, 8)
    masked = WidthSpace.trace(Masked(), x)
    assert [g.name for g in masked.groups] == ["last.0"]
    assert "no rule for operator aten.index.Tensor" in {f.reason for f in masked.fixed}
    chosen = WidthSpace.trace(Nonzero(), x)
    (named,) = chosen.uncounted
    assert named.startswith("aten.conv2d.default, as often as the data say (last.0 at")
    with pytest.raises(TraceError, match=r"shapes of a network's outputs.*got one that the data decide"):
        WidthSpace.trace(Undecided(), x)


class Asserting(Around):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] != 8:
            raise AssertionError
        return x


def test_a_reason_says_what_the_models_own_code_wants() -> None:
    space = WidthSpace.trace(Asserting(), torch.randn(2, 3, 8, 8))
    (held,) = (f for f in space.fixed if f.name == "first.0.weight" and f.dim == 0)
    assert held.reason.endswith("breaks at other widths: AssertionError in `raise AssertionError`")
    assert f"{__file__}, line " in held.where


class LookingUp(Around):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * {8: 1.0}[x.shape[1]]


class Refusing(Around):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] != 8:
            raise ValueError("eight channels, please")
        return x


def test_a_reason_names_the_kind_of_error_where_its_words_say_little() -> None:
    for network, said in (
        (LookingUp(), r"KeyError: \d+ in `return x \* \{8: 1.0\}\[x.shape\[1\]\]`"),
        (Refusing(), "eight channels, please"),
    ):
        space = WidthSpace.trace(network, torch.randn(2, 3, 8, 8))
        (held,) = (f for f in space.fixed if f.name == "first.0.weight" and f.dim == 0)
        assert re.search(f"breaks at other widths: {said}$", held.reason), held.reason


class Needy(nn.Module):
    def forward(self, x: torch.Tensor, targets: object = None) -> torch.Tensor:
        raise AssertionError("targets should not be none")


def test_advice_on_shapes_is_for_errors_of_shapes() -> None:
    with pytest.raises(TraceError, match=r"running it failed: AssertionError: targets should not be none$"):
        WidthSpace.trace(Needy(), torch.randn(2, 3, 8, 8))
    with pytest.raises(TraceError, match=r"running it failed: RuntimeError: .*check the shape"):
        WidthSpace.trace(Around(), torch.randn(2, 4, 8, 8))


def local() -> nn.Module:
    """A class that is another one at every call, as in a notebook's cell that is run again."""

    class Local(TinyNetwork):
        pass

    return Local()


def test_a_class_defined_in_the_factory_is_searched(tmp_path) -> None:
    outcome = tiny_search(tmp_path, model=local)
    assert type(outcome.network).__qualname__ == "local.<locals>.Local"


def test_a_factory_of_another_class_is_refused() -> None:
    model = TinyNetwork()
    space = WidthSpace.trace(model, torch.zeros(2, 1, 8, 8))
    with pytest.raises(ModelError, match="the factory must make a TinyNetwork; got Local"):
        build(model, space, space.full, factory=local)
