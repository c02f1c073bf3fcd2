"""Networks as people bring them: what their code does with channels is followed, or named."""

import threading
from itertools import pairwise

import pytest
import torch
from properties import check_path_equals_built, free_widths
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

import bcnet
from bcnet import Supernet, WidthSpace
from bcnet.errors import TraceError, WidthError
from bcnet.supernet import Side


def check_paths(model, x):
    """Trace a network and compare its paths with built networks; functions within it cannot be pickled."""
    space = WidthSpace.trace(model, x)
    check_path_equals_built(model, space, x, free_widths(space, torch.Generator().manual_seed(0)))
    return space


class Between(nn.Module):
    """A function of the maps between two convolutions."""

    def __init__(self, between, channels=16, out=None):
        super().__init__()
        self.between = between
        self.a = nn.Conv2d(3, channels, 3, padding=1)
        self.b = nn.Conv2d(out or channels, 6, 3)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.b(self.between(self.a(x))).mean((2, 3)))


def first_rows(x):
    out = torch.zeros(x.shape[0], x.shape[1], x.shape[2] + 2, x.shape[3], dtype=x.dtype)
    out[:, :, 2:] = x
    return out


FOLLOWED = {
    "pointwise by torch's tag": lambda x: torch.asinh(x.neg()).clip(-1, 6) + torch.copysign(x, -x),
    "in place with operands": lambda x: x.clone().addcmul_(x, x).lerp_(2 * x, 0.5),
    "ones for each channel": lambda x: x * torch.ones(1, x.shape[1], 1, 1, dtype=x.dtype),
    "full in the shape of another": lambda x: torch.maximum(x, torch.full(x.shape, 0.1, dtype=x.dtype)),
    "zeros, filled": first_rows,
    "the last three quarters": lambda x: torch.cat([x[:, : x.shape[1] // 4].tanh(), x[:, x.shape[1] // 4 :]], 1),
    "a quarter and the rest": lambda x: torch.cat(
        [part.relu() for part in x.split((x.shape[1] // 4, x.shape[1] - x.shape[1] // 4), 1)], 1
    ),
    "local response normalisation": nn.LocalResponseNorm(5),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_channels_are_searched_across(name):
    space = check_paths(Between(FOLLOWED[name]).double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert [group.name for group in space.groups] == ["a", "b"]


def largest_of_two(x):
    batch, channels, height, width = x.shape
    return x.view(batch, channels // 2, 2, height, width).amax(2)


def test_the_largest_of_neighbours_keeps_pairs():
    space = check_paths(Between(largest_of_two, 16, 8).double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert [(group.name, group.max_width, group.unit) for group in space.groups] == [("a", 8, 1), ("b", 6, 1)]


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 12 * 16)
        self.up = nn.ConvTranspose2d(12, 6, 4, 2, 1)
        self.out = nn.Conv2d(6, 3, 3)

    def forward(self, z):
        return self.out(torch.relu(self.up(torch.relu(self.fc(z)).view(z.shape[0], -1, 4, 4))))


def test_a_vector_becomes_a_map():
    space = check_paths(Generator().double(), torch.randn(2, 8, dtype=torch.float64))
    assert [(group.name, group.max_width, group.unit) for group in space.groups] == [("fc", 12, 1), ("up", 6, 1)]


class Bank(nn.Module):
    """One kernel, mixed of several."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.bank = nn.Parameter(torch.randn(4, 24, 16, 3, 3) * 0.1)
        self.mix = nn.Parameter(torch.randn(4, 1, 1, 1, 1))
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        kernel = (self.bank * self.mix.softmax(0)).sum(0)
        return self.head(torch.relu(F.conv2d(torch.relu(self.stem(x)), kernel)).mean((2, 3)))


class Packed(nn.Module):
    """Several members in one grouped convolution, all of which see the same maps."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.a = nn.Conv2d(64, 96, 3, groups=4)
        self.b = nn.Conv2d(96, 48, 3, groups=4)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = torch.relu(self.stem(x)).repeat(1, 4, 1, 1)
        x = torch.relu(self.b(torch.relu(self.a(x)))).mean((2, 3))
        return self.head(torch.stack(x.chunk(4, 1)).mean(0))


class Gated(nn.Module):
    """A gated recurrent cell over two steps whose state is made in the shape of its input."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 16, 3, padding=1)
        self.gates = nn.Conv2d(32, 32, 3, padding=1)
        self.new = nn.Conv2d(32, 16, 3, padding=1)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.a(x)
        state = torch.zeros(x.shape, dtype=x.dtype)
        for _ in range(2):
            r, z = torch.sigmoid(self.gates(torch.cat([x, state], 1))).chunk(2, 1)
            state = (1 - z) * state + z * torch.tanh(self.new(torch.cat([x, r * state], 1)))
        return self.head(state.mean((2, 3)))


class Quantised(nn.Module):
    """A weight quantised by channel in training."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 12, 3, padding=1)
        self.b = nn.Conv2d(12, 16, 3, 2)
        self.head = nn.Linear(16, 5)
        self.register_buffer("scale", torch.rand(12) * 0.1 + 0.01)
        self.register_buffer("zero", torch.zeros(12, dtype=torch.int32))

    def forward(self, x):
        weight = torch.fake_quantize_per_channel_affine(self.a.weight, self.scale, self.zero, 0, -128, 127)
        return self.head(torch.relu(self.b(torch.relu(F.conv2d(x, weight, self.a.bias, padding=1)))).mean((2, 3)))


@pytest.mark.parametrize(
    ("network", "groups"),
    [(Bank, ["stem", "bank"]), (Packed, ["stem", "a", "b"]), (Gated, ["a"]), (Quantised, ["a", "b"])],
)
def test_their_channels_are_searched(network, groups):
    model, x = network(), torch.randn(2, 3, 12, 12)
    if network is not Quantised:  # which computes in single precision alone
        model, x = model.double(), x.double()
    space = check_paths(model, x)
    assert [group.name for group in space.groups] == groups


class Flattened(nn.Module):
    """An image without a channel axis, whose second dimension is no channel."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 8, 3, padding=1)
        self.b = nn.Conv2d(8, 12, 3, padding=1)
        self.head = nn.Linear(12 * 64, 5)

    def forward(self, x):
        return self.head(torch.relu(self.b(torch.relu(self.a(x[:, None])))).flatten(1))


def test_rows_of_an_input_do_not_pin_what_is_flattened_with_them():
    space = check_paths(Flattened().double(), torch.randn(2, 8, 8, dtype=torch.float64))
    assert [group.name for group in space.groups] == ["a", "b"]


class Tasks(nn.Module):
    """A head for each task, one of which the example's call runs."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 12, 3)
        self.heads = nn.ModuleList(nn.Linear(12, k) for k in (4, 7))

    def forward(self, x, task=0):
        return self.heads[task](torch.relu(self.body(x)).mean((2, 3)))


def test_what_the_example_does_not_run_is_named():
    space = WidthSpace.trace(Tasks(), torch.randn(2, 3, 8, 8))
    (named,) = {f.reason for f in space.fixed if f.name.startswith("heads.1")}
    assert named.startswith("not run by the example's call")
    assert not [f for f in space.fixed if f.name.startswith("heads.0.") and "not run" in f.reason]


class Hooked(nn.Module):
    """Features kept by a hook that is a function of the original's."""

    def __init__(self, bound):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.last = nn.Conv2d(16, 2, 1)
        self.kept = {}
        if bound:
            self.first.register_forward_hook(self.keep)
        else:
            self.first.register_forward_hook(lambda module, inputs, output: self.kept.update(first=output))

    def keep(self, module, inputs, output):
        self.kept["first"] = output

    def forward(self, x):
        return self.last(torch.cat([torch.relu(self.first(x)), self.kept["first"]], 1))


def test_a_hook_that_holds_on_to_the_original_is_refused_by_name():
    model = Hooked(bound=False)
    with pytest.raises(TraceError, match=r"a hook of first is .*<lambda>.*make it a method"):
        bcnet.trace(model, torch.randn(2, 3, 8, 8))
    assert model.kept == {}
    assert [g.name for g in bcnet.trace(Hooked(bound=True), torch.randn(2, 3, 8, 8)).groups] == ["first"]


def test_functions_that_hold_nothing_of_the_network_are_left_alone():
    seen = []
    model = Between(torch.relu)
    model.looks = []
    model.b.register_forward_hook(lambda *_: model.looks.append("b"))  # it merely looks on
    model.a.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    model.activation = lambda x: x.relu()
    assert len(bcnet.trace(model, torch.randn(2, 3, 8, 8)).groups) == 2


class OwnNorm(nn.BatchNorm2d):
    """Written out, with statistics of its own keeping."""

    def forward(self, x):
        if self.training:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
            with torch.no_grad():
                self.running_mean.mul_(0.9).add_(mean, alpha=0.1)
                self.running_var.mul_(0.9).add_(variance, alpha=0.1)
        else:
            mean, variance = self.running_mean, self.running_var
        x = (x - mean[:, None, None]) / (variance[:, None, None] + self.eps).sqrt()
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class Normed(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.a = nn.Conv2d(3, 12, 3, bias=False)
        self.norm = norm(12)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.a(x))).mean((2, 3)))


def test_a_batch_norm_of_ones_own_is_as_torchs():
    torch.manual_seed(0)
    model = Normed(OwnNorm)
    plain = Normed(nn.BatchNorm2d)
    plain.load_state_dict(model.state_dict())
    x = torch.randn(8, 3, 8, 8)
    space = bcnet.trace(model, x)
    widths = space.uniform(macs=0.5)
    paths = [Supernet(network, space).eval()(x, widths, Side.RIGHT) for network in (model, plain)]
    torch.testing.assert_close(*paths)
    narrow, alike = (bcnet.narrow(network, space, widths, calibrate=[x, 2 * x]).eval() for network in (model, plain))
    torch.testing.assert_close(narrow.norm.running_mean, alike.norm.running_mean)
    torch.testing.assert_close(narrow.norm.running_var, alike.norm.running_var)


class FrozenNorm(nn.Module):
    """Statistics that are buffers, no batch norm's."""

    def __init__(self, n):
        super().__init__()
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.rand(n) + 0.5)

    def forward(self, x):
        scale = self.weight * self.running_var.rsqrt()
        return x * scale[:, None, None] + (self.bias - self.running_mean * scale)[:, None, None]


def test_buffers_of_a_frozen_norm_stay():
    model = Normed(FrozenNorm)
    space = bcnet.trace(model, torch.randn(2, 3, 8, 8))
    built = bcnet.supernet.build(model, space, space.full)
    for (name, buffer), same in zip(built.named_buffers(), model.buffers(), strict=True):
        assert torch.equal(buffer, same), name


class Placed(nn.Module):
    """Initial values that mean something: an identity transform, and a ramp."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 16, 3)
        self.say = nn.Linear(16, 6)
        nn.init.zeros_(self.say.weight)
        self.say.bias.data.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))
        self.bands = nn.Parameter(torch.linspace(0.1, 1, 16))
        self.places = nn.Parameter(torch.sin(torch.arange(64)[:, None] / torch.linspace(4, 8, 8)))

    def forward(self, x):
        return self.say((torch.relu(self.a(x)) * self.bands[:, None, None]).mean((2, 3))) + self.places.mean()


def test_values_that_are_no_draws_keep_their_order():
    torch.manual_seed(0)
    model = Placed()
    space = bcnet.trace(model, torch.randn(2, 1, 8, 8))
    built = bcnet.supernet.build(model, space, space.full)
    for name in ("say.bias", "bands", "places"):
        assert torch.equal(built.get_parameter(name), model.get_parameter(name)), name
    assert not torch.equal(built.a.weight, model.a.weight)
    assert torch.equal(built.a.weight.flatten().sort().values, model.a.weight.flatten().sort().values)


class Complex(nn.Module):
    """The first parameter is complex, so that it does not tell the precision of images."""

    def __init__(self):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(1, 1, 8, 5, dtype=torch.cfloat))
        self.a = nn.Conv2d(1, 8, 3)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.fft.irfft2(torch.fft.rfft2(x) * self.filter, s=x.shape[-2:])
        return self.head(torch.relu(self.a(x)).mean((2, 3)))


def test_images_keep_their_kind_whatever_the_first_parameter_is():
    model, x = Complex(), torch.randn(4, 1, 8, 8)
    space = bcnet.trace(model, x)
    narrow = bcnet.narrow(model, space, space.uniform(macs=0.5), calibrate=[x])
    assert narrow(x).shape == (4, 3)


class Noisy(nn.Module):
    """Random numbers in eval mode: dropout that stays on, and noise by channel."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 8, 3)
        self.b = nn.Conv2d(8, 8, 3)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = F.dropout(torch.relu(self.a(x)), 0.2, training=True)
        x = self.b(x)
        return self.head(torch.relu(x + 0.1 * torch.randn_like(x)).mean((2, 3)))


def test_channels_are_sorted_by_importance_whatever_is_drawn():
    torch.manual_seed(0)
    model, x = Noisy(), torch.randn(4, 1, 8, 8)
    space = bcnet.trace(model, x)
    state = torch.get_rng_state()
    moved = bcnet.supernet.reorder(model, space, bcnet.supernet.by_importance(model, space), x)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(moved.a.weight, model.a.weight)
    assert not torch.equal(moved.b.weight, model.b.weight)


class OwnLayerNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.normalized_shape = (channels,)

    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias)


class Stored(nn.Module):
    """Numbers of channels in attributes: in a tuple, in an int, and one that merely equals a number of channels."""

    def __init__(self, channels=16):
        super().__init__()
        self.channels, self.size = channels, 16
        self.stem = nn.Conv2d(3, 2 * channels, 3, padding=1)
        self.norm = OwnLayerNorm(channels)
        self.fc = nn.Linear(channels * self.size, 12)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        a, b = torch.split(self.stem(x), self.channels, 1)
        x = self.norm((a * b).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = F.adaptive_avg_pool2d(x, self.size // 4)
        return self.head(torch.relu(self.fc(x.reshape(-1, self.channels * 16))))


def test_numbers_that_modules_store_follow_the_widths():
    model = Stored().double()
    space = check_paths(model, torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert [(group.name, group.max_width) for group in space.groups] == [("stem", 16), ("fc", 12)]
    narrow = bcnet.narrow(model, space, (5, 7))
    assert (narrow.channels, narrow.norm.normalized_shape, narrow.size) == (5, (5,), 16)
    assert (model.channels, model.norm.normalized_shape) == (16, (16,))
    document = bcnet.supernet.describe(model, space, (5, 7))
    again = bcnet.supernet.rebuild(document, lambda: Stored().double())
    assert (again.channels, again.norm.normalized_shape, again.size) == (5, (5,), 16)


class Mapped(nn.Module):
    """Counts pixels and channels, as many at this size, in attributes; ten others may count either of two layers."""

    def __init__(self):
        super().__init__()
        self.pixels, self.channels = 16, 16
        vars(self).update({f"{name}_{number}": number for name in "abcde" for number in (24, 12)})
        widths = (3, 16, 24, 12, 24, 12)
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        assert x.shape[-1] == self.pixels
        x = self.layers[0](x).reshape(-1, self.channels, self.pixels, self.pixels)
        for layer in self.layers[1:]:
            x = layer(x).relu()
        return self.head(x.mean((2, 3)))


@pytest.mark.slow
def test_pixels_that_are_as_many_as_channels_stay():
    network = Mapped()
    space = check_paths(network, torch.randn(2, 3, 16, 16))
    assert len(space.groups) == 5
    narrow = bcnet.narrow(network, space, [group.least for group in space.groups])
    assert (narrow.pixels, narrow.channels) == (16, space.groups[0].least)


class Stages(nn.Module):
    """A block whose channels are split by a stored width; each part is added to what the one before it gave, or not."""

    def __init__(self, i, width, adds):
        super().__init__()
        self.width, self.adds = width, adds
        self.first = nn.Conv2d(i, 3 * width, 1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.last = nn.Conv2d(3 * width, i, 1)

    def forward(self, x):
        one, two, rest = torch.split(torch.relu(self.first(x)), self.width, 1)
        one = torch.relu(self.convs[0](one))
        two = torch.relu(self.convs[1](one + two if self.adds else two))
        return x + self.last(torch.cat((one, two, rest), 1))


class Partial(nn.Module):
    """A convolution of a quarter of the channels; how many others there are is stored where no tensor is so long."""

    def __init__(self, channels):
        super().__init__()
        self.taken = channels // 4
        self.left = channels - self.taken
        self.conv = nn.Conv2d(self.taken, self.taken, 3, padding=1)

    def forward(self, x):
        taken, left = torch.split(x, [self.taken, self.left], 1)
        return torch.cat((self.conv(taken), left), 1)


class Mixed(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.mixing = Partial(channels)
        self.grow, self.shrink = nn.Conv2d(channels, 2 * channels, 1), nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x):
        return x + self.shrink(torch.relu(self.grow(self.mixing(x))))


SHARES = {
    # More groups than are tried one by one.
    "widths of a split": lambda: [Stages(8, w, adds) for w in (5, 6, 7) for adds in (False, True)],
    "a quarter and the rest": lambda: [Mixed(8), Mixed(8)],
}


@pytest.mark.slow
@pytest.mark.parametrize("blocks", SHARES.values(), ids=SHARES)
def test_stored_numbers_that_are_parts_of_a_length_follow_the_widths(blocks):
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), *blocks(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    space = check_paths(model.double(), torch.randn(2, 3, 13, 13, dtype=torch.float64))
    assert {fixed.reason for fixed in space.fixed} == {"the network's input", "the network's output"}
    narrow = bcnet.narrow(model, space, space.narrowest)
    numbers = [(block, copy) for block, copy in zip(model.modules(), narrow.modules(), strict=True)]
    for block, copy in numbers:
        if isinstance(block, Stages):
            assert copy.width == copy.convs[0].in_channels < block.width
        if isinstance(block, Partial):
            assert copy.taken == copy.conv.in_channels < block.taken
            assert copy.left == 3 * copy.taken


class ToMap(nn.Module):
    """A decoder that makes a map of its features by a number that is written out."""

    def __init__(self):
        super().__init__()
        self.features = nn.Linear(8, 16 * 4)
        self.up = nn.ConvTranspose2d(16, 12, 4, 2, 1)
        self.out = nn.Conv2d(12, 3, 3, padding=1)

    def forward(self, z):
        return self.out(torch.relu(self.up(self.features(z).view(-1, 16, 2, 2))))


def test_of_two_readings_that_hold_as_much_the_one_that_says_what_to_do_is_reported():
    space = bcnet.trace(ToMap(), torch.randn(2, 8))
    (held,) = [fixed for fixed in space.fixed if (fixed.name, fixed.dim) == ("features.weight", 0)]
    assert "shape '[-1, 16, 2, 2]' is invalid" in held.reason
    assert held.remedy == "let the code read numbers of channels off the tensor (x.shape[1])"


class Merged(nn.Module):
    """Two branches that a method of its own makes one."""

    def __init__(self, i, o):
        super().__init__()
        self.in_channels, self.out_channels = i, o
        self.wide = nn.Conv2d(i, o, 3, padding=1)
        self.point = nn.Conv2d(i, o, 1)
        self.one = None

    def forward(self, x):
        return torch.relu(self.wide(x) + self.point(x) if self.one is None else self.one(x))

    def merge(self):
        self.one = nn.Conv2d(self.in_channels, self.out_channels, 3, padding=1)
        self.one.weight.data = (self.wide.weight + F.pad(self.point.weight, [1] * 4)).detach()
        self.one.bias.data = (self.wide.bias + self.point.bias).detach()


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Merged(3, 16), Merged(16, 16), Merged(16, 12))
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.blocks(x).mean((2, 3)))


def test_methods_beside_forward_find_numbers_that_fit():
    model, x = Blocks(), torch.randn(2, 3, 8, 8)
    space = bcnet.trace(model, x)
    narrow = bcnet.narrow(model, space, (5, 7, 3)).eval()
    expected = narrow(x)
    for block in narrow.blocks:
        block.merge()
    torch.testing.assert_close(narrow(x), expected, rtol=1e-4, atol=1e-5)


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2)
        self.attend = nn.MultiheadAttention(16, 4, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head((x + self.attend(x, x, x, need_weights=False)[0]).mean(1))


def test_attention_is_narrowed_within_its_heads():
    model, x = Attending(), torch.randn(2, 3, 8, 8)
    space = bcnet.trace(model, x)
    assert [group.name for group in space.groups] == ["stem"]
    narrow = bcnet.narrow(model, space, (space.groups[0].unit * 2,))
    assert narrow.attend.embed_dim == narrow.stem.out_channels < 16
    assert narrow(x).shape == (2, 3)


class NonLocal(nn.Module):
    """Queries, keys and values, two layers' lengths in one attribute."""

    def __init__(self, channels=16, within=8):
        super().__init__()
        self.within = within
        self.values, self.queries, self.keys = (nn.Conv2d(channels, within, 1) for _ in range(3))
        self.out = nn.Conv2d(within, channels, 1)

    def forward(self, x):
        n = x.size(0)
        values, queries, keys = (layer(x).view(n, self.within, -1) for layer in (self.values, self.queries, self.keys))
        weights = (queries.transpose(1, 2) @ keys).softmax(-1)
        y = (weights @ values.transpose(1, 2)).transpose(1, 2).contiguous()
        return x + self.out(y.view(n, self.within, *x.shape[2:]))


class NonLocalNetwork(nn.Sequential):
    def __init__(self):
        blocks = NonLocal(), NonLocal(within=12)
        super().__init__(nn.Conv2d(3, 16, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))


@pytest.mark.slow
@pytest.mark.parametrize("pixels", [10, 9])  # a square of 8 pixels a side is a multiple of the widths, one of 7 is not
def test_layers_that_one_number_counts_are_tied(pixels):
    space = check_paths(NonLocalNetwork().double(), torch.randn(2, 3, pixels, pixels, dtype=torch.float64))
    assert [group.max_width for group in space.groups] == [16, 8, 12]
    narrow = bcnet.narrow(NonLocalNetwork().double(), space, (9, 3, 5))
    assert (narrow[1].within, narrow[2].within) == (3, 5)


class OwnAttention(nn.Module):
    """Attention over pixels whose projections are one layer, divided at once: `(n, 3, heads, channels, pixels)`."""

    def __init__(self, channels=16, heads=4):
        super().__init__()
        self.heads = heads
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.projections = nn.Conv2d(channels, 3 * channels, 1)
        self.places = nn.Parameter(torch.randn(1, heads, channels // heads, 64))
        self.head = nn.Linear(channels, 3)

    def forward(self, x):
        x = self.stem(x)
        n, c, h, w = x.shape
        divided = self.projections(x).reshape(n, 3, self.heads, c // self.heads, h * w)
        queries, keys, values = divided.unbind(1)
        weights = (queries.transpose(-2, -1) @ (keys + self.places)).softmax(-1)
        return self.head((x + (values @ weights.transpose(-2, -1)).reshape(n, c, h, w)).mean((2, 3)))


def test_channels_are_divided_over_more_than_two_dimensions():
    space = check_paths(OwnAttention().double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert [group.max_width for group in space.groups] == [4]


class SpatialAttention(nn.Module):
    """Attention between positions, whose code reads the number of channels off one tensor for all of them."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.stem, self.out, self.head = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 1), nn.Conv2d(16, 3, 1)
        if kind == "all at once":
            self.all = nn.Conv2d(16, 48, 1)
        else:
            self.query, self.key, self.value = (nn.Conv2d(16, 16, 1) for _ in range(3))

    def forward(self, x):
        x = self.stem(x)
        b, c, h, w = x.shape
        if self.kind == "of the query":
            query = self.query(x)
            n, channels = query.shape[:2]
            q, k, v = (t.reshape(n, channels, -1) for t in (query, self.key(x), self.value(x)))
        elif self.kind == "heads":
            q, k, v = (layer(x).view(b * 4, c // 4, h * w) for layer in (self.query, self.key, self.value))
        else:
            q, k, v = self.all(x).view(b * 4, 3 * c // 4, h * w).split(c // 4, dim=1)
        weights = torch.bmm(q.transpose(1, 2), k).softmax(-1)
        return self.head(x + self.out(torch.bmm(v, weights.transpose(1, 2)).reshape(b, -1, h, w)))


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("of the query", [("stem", 16), ("query", 16)]), ("heads", [("stem", 4)]), ("all at once", [("stem", 4)])],
)
def test_channels_counted_by_another_tensors_shape_are_tied_to_it(kind, wanted):
    torch.manual_seed(0)
    model, x = SpatialAttention(kind).double(), torch.randn(2, 3, 6, 6, dtype=torch.float64)
    space = check_paths(model, x)
    assert [(group.name, group.max_width) for group in space.groups] == wanted
    assert all(group.least == 1 for group in space.groups)
    assert {dimension.reason for dimension in space.fixed} == {"the network's input", "the network's output"}


def test_blocks_that_break_at_one_line_are_tied_each_by_itself():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 16, 1)
            self.back = nn.Conv2d(16, 8, 1)

        def forward(self, x):
            entered = self.enter(x)
            return x + self.back(self.leave(entered).view(entered.shape))

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), Block(), Block(), Block(), nn.Conv2d(8, 3, 1)).double()
    space = check_paths(model, torch.randn(2, 3, 6, 6, dtype=torch.float64))
    assert [group.name for group in space.groups] == ["0", "1.enter", "2.enter", "3.enter"]


def test_what_has_nothing_to_do_with_each_other_is_not_tied():
    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.other, self.head = nn.Conv2d(3, 16, 3), nn.Conv2d(3, 16, 3), nn.Conv2d(32, 3, 1)

        def forward(self, x):
            y = torch.cat([self.stem(x), self.other(x)], 1)
            return self.head(y.view(len(x), 32, *y.shape[2:]))

    with pytest.raises(TraceError, match=r"the model's own code breaks at other widths"):
        bcnet.trace(Kept(), torch.randn(2, 3, 8, 8))


def test_a_norm_without_tensors_is_told_its_channels(recwarn):
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.InstanceNorm2d(16), nn.Conv2d(16, 3, 3))
    space = bcnet.trace(model, torch.randn(2, 3, 8, 8))
    narrow = bcnet.narrow(model, space, (5,))
    assert narrow[1].num_features == 5
    narrow(torch.randn(2, 3, 8, 8))
    assert not recwarn.list


class Bare(nn.Module):
    """Weights that one module holds itself."""

    def __init__(self):
        super().__init__()
        self.f1, self.f2, self.f3 = (
            nn.Parameter(torch.randn(o, i, 3, 3) * 0.1) for o, i in ((16, 1), (12, 16), (1, 12))
        )

    def forward(self, x):
        for weight in (self.f1, self.f2, self.f3):
            x = torch.relu(F.conv2d(x, weight, padding=1))
        return x


def test_groups_have_names_of_their_own():
    space = bcnet.trace(nn.Sequential(Bare(), Bare()), torch.randn(2, 1, 8, 8))
    assert [group.name for group in space.groups] == ["0.f1", "0.f2", "1.f1", "1.f2"]


class Locked(nn.Module):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, x):
        return x


class WritesWeights(nn.Conv2d):
    def forward(self, x):
        self.weight.data *= 0.5
        return super().forward(x)


class Exits(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.head = nn.Conv2d(3, 12, 3), nn.Linear(12, 3)

    def forward(self, x):
        y = self.head(self.a(x).mean((2, 3)))
        if y.amax() > 0.9:
            return y
        return 2 * y


def masked():
    part = nn.Conv2d(8, 8, 3)
    prune.l1_unstructured(part, "weight", amount=0.3)
    part(torch.randn(1, 8, 4, 4)).sum().backward()
    return part


@pytest.mark.parametrize(
    ("middle", "message"),
    [
        (Locked, r"1\.lock, a lock of Locked, cannot be copied .*keep it outside"),
        (lambda: nn.LazyConv2d(8, 3), "1 has none yet: run it once on an example"),
        (masked, r"1 is masked by torch.nn.utils.prune.*remove\(module, 'weight'\)"),
        (lambda: torch.jit.script(nn.BatchNorm2d(8)), "1 is a scripted module.*before torch.jit.script"),
        (lambda: WritesWeights(8, 8, 3), r"writes into a weight.*weight \* mask"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:Lazy modules")
def test_what_keeps_a_network_from_being_copied_or_exported_is_named(middle, message):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), middle(), nn.Conv2d(8, 4, 1))
    with pytest.raises(TraceError, match=message):
        bcnet.trace(model, torch.randn(2, 3, 8, 8))


def test_a_branch_on_values_is_told_with_its_line_and_nothing_more(capfd):
    with pytest.raises(TraceError, match=r"decides by the values of a tensor .*`if y\.amax\(\) > 0\.9:`"):
        bcnet.trace(Exits(), torch.randn(2, 3, 8, 8))
    said = capfd.readouterr()
    assert said.out + said.err == ""


@pytest.mark.parametrize("kind", ["whole", "a part", "by its method"])
def test_a_compiled_network_is_taken_as_it_was_before(kind):
    def made():
        model = Blocks()
        if kind == "a part":
            model.blocks = torch.compile(model.blocks, backend="eager")
        if kind == "by its method":
            model.compile(backend="eager")
        return torch.compile(model, backend="eager") if kind == "whole" else model

    model, x = made(), torch.randn(2, 3, 8, 8)
    names = list(model.state_dict())
    space = bcnet.trace(model, x)
    assert space.groups[0].name == "blocks.0.wide"
    narrow = bcnet.narrow(model, space, (5, 7, 3), calibrate=[x])
    assert type(narrow) is Blocks
    assert not any(part._compiled_call_impl for part in narrow.modules())
    assert narrow(x).shape == (2, 5)
    assert Supernet(model, space)(x, (5, 7, 3), Side.RIGHT).shape == (2, 5)
    document = bcnet.supernet.describe(Blocks(), space, (5, 7, 3))
    assert type(bcnet.supernet.rebuild(document, made)) is Blocks
    assert list(model.state_dict()) == names


class Standardised(nn.Conv2d):
    """Its weights are standardised by batch norm, which needs two values for each filter."""

    def forward(self, x):
        weight = self.weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(weight, None, None, training=True, momentum=0.0).reshape_as(self.weight)
        return F.conv2d(x, weight, self.bias)


def standardised():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), Standardised(16, 16, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)
    )


def test_a_group_that_breaks_at_one_channel_is_bounded_by_its_first_choice():
    x = torch.randn(2, 3, 8, 8)
    space = bcnet.trace(standardised(), x, min_ratio=0.25, multiple_of=1)
    assert [(group.name, group.least) for group in space.groups] == [("0", 4), ("2", 1)]
    assert space.scaled(0.01) == (4, 1)
    assert space.complement((14, 14)) == (6, 2)
    assert space.balanced(macs=0.3)[0] >= 4
    with pytest.raises(WidthError, match=r"must be an int in \[4, 16\]"):
        space.check((3, 8))
    assert bcnet.narrow(standardised(), space, (4, 1))(x).shape == (2, 3)
    tighter = bcnet.trace(standardised(), x, multiple_of=1)  # its first choice is one channel
    assert [group.name for group in tighter.groups] == ["2"]
