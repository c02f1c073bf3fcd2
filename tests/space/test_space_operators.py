"""What each operator makes of the channels that it is given: searchable as before, shared, in parts, or pinned."""

from __future__ import annotations

import pytest
import torch
from properties import check_network
from torch import nn
from torch.nn import functional as F

from bcnet.space import WidthSpace


class AlongChannels(nn.Module):
    """A convolution along the channels, as in an ECA gate, that adds `more` of them at either end."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.along = nn.Conv1d(1, 1, 3, padding=1 + more)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.along(x.mean((2, 3))[:, None])[:, 0, :, None, None]


class Similar(nn.Module):
    """What is made of the input, as far as it is like it, channel by channel."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * F.cosine_similarity(x, self.other(x), dim=1)[:, None]


class Blurred(nn.Module):
    """Anti-aliasing by one filter that the forward expands to as many as there are channels (Zhang, 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filter", torch.tensor([1.0, 2.0, 1.0]).outer(torch.tensor([1.0, 2.0, 1.0])) / 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        filters = self.filter.expand(x.shape[1], 1, 3, 3)
        return F.conv2d(x, filters, stride=2, padding=1, groups=x.shape[1])


class BlurredByNumber(Blurred):
    """The same by a number of filters that stands in the code."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.filter.expand(8, 1, 3, 3), stride=2, padding=1, groups=8)


# Name -> what happens between two convolutions of 8 channels and 6.
OPERATORS = {
    "nothing": lambda x: x,
    "permute": lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "transpose": lambda x: x.transpose(1, 2).transpose(2, 1),
    "movedim": lambda x: x.movedim(1, -1).movedim(-1, 1),
    "glu": lambda x: F.glu(x, 1),
    "first half": lambda x: x[:, :4],
    "last half": lambda x: x[:, -4:],
    "middle": lambda x: x[:, 2:6],
    "some": lambda x: x[:, :3],
    "chunk": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
    "chunks of the batch": lambda x: torch.cat(x.chunk(2)[::-1]),
    "unbound batch": lambda x: torch.stack(x.unbind()),
    "tensor split": lambda x: torch.cat(x.tensor_split(2, 1)[::-1], 1),
    "tensor split at a number": lambda x: torch.cat(x.tensor_split((3,), 1)[::-1], 1),
    "swapped dimensions": lambda x: x.swapdims(1, 3).swapdims(3, 1),
    "joined horizontally": lambda x: torch.hstack((x, -x)),
    "fake quantised": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.125, 0, -128, 127),
    "uneven split": lambda x: torch.cat(x.split([3, 5], 1)[::-1], 1),
    "unbind channels": lambda x: torch.stack(x.unbind(1), 1),
    "unbind rows": lambda x: torch.stack(x.unbind(2), 2),
    "one channel": lambda x: x * x.select(1, 0)[:, None],
    "one row": lambda x: x * x.select(2, 0)[:, :, None],
    "mean over positions": lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)),
    "largest position": lambda x: x - x.amax((2, 3), keepdim=True),
    "norm over positions": lambda x: x / (1 + x.norm(dim=(2, 3), keepdim=True)),
    "norm without its axes": lambda x: x / (1 + torch.norm(x, 2, (2, 3))[:, :, None, None]),
    "deviation over positions": lambda x: x / (1 + x.std((2, 3), keepdim=True)),
    "mean over channels": lambda x: x - x.mean(1, keepdim=True),
    "largest channel": lambda x: x - x.max(dim=1, keepdim=True).values,
    "flattened and back": lambda x: x.flatten(1).unflatten(1, (x.shape[1], x.shape[2], x.shape[3])),
    "larger of two": lambda x: torch.max(x, -x),
    "sum along rows": lambda x: x.cumsum(2),
    "pixel shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "pixel unshuffle by four": lambda x: F.pixel_unshuffle(x, 4),
    "roll": lambda x: x.roll(1, 1),
    "roll rows": lambda x: x.roll((1, 2), (2, 3)),
    "flip": lambda x: x.flip(1),
    "turned by a quarter": lambda x: x.rot90(1, (2, 3)),
    "sorted along rows": lambda x: x.sort(2).values,
    "sorted channels": lambda x: x.sort(1, descending=True)[0],
    "largest three of a row": lambda x: x.topk(3, 2).values,
    "largest three of the last": lambda x: x.permute(0, 2, 3, 1).topk(3).values.permute(0, 3, 1, 2),
    "largest three channels": lambda x: x.topk(3, dim=1).values,
    "third of a row": lambda x: x - x.kthvalue(3, 3, keepdim=True).values,
    "median": lambda x: x - x.median(),
    "median of a row": lambda x: x - x.median(3, keepdim=True).values,
    "median channel": lambda x: x - x.median(1, keepdim=True)[0],
    "one or the other": lambda x: x * ((x > 1) | (x.roll(1, 2) < 0)),
    "rows twice": lambda x: x.repeat(1, 1, 2, 1),
    "channels twice": lambda x: x.repeat(1, 2, 1, 1),
    "tiled": lambda x: x.tile(2, 2),
    "each channel twice": lambda x: x.repeat_interleave(2, 1),
    "each element twice": lambda x: x.repeat_interleave(2).view(len(x), -1, *x.shape[2:]),
    "rows as often as said": lambda x: x.repeat_interleave(torch.tensor([1, 2, 1, 1, 1, 1, 1, 1]), 2, output_size=9),
    "rows by number": lambda x: x[:, :, [0, 2, 5]],
    "selected rows": lambda x: x.index_select(3, torch.tensor([1, 1, 4])),
    "channels by number": lambda x: x[:, [0, 1, 3]],
    "channels and rows by number": lambda x: x[:, [0, 1, 3], [0, 1, 2]][..., None, :],
    "looked up": lambda x: F.grid_sample(x, x.new_zeros(len(x), 4, 5, 2), align_corners=False),
    "unpooled": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "windows and back": lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1),
    "windows": lambda x: x.unfold(2, 3, 2).mean(-1),
    "similar to its mean": lambda x: x * F.cosine_similarity(x, x.mean(1, keepdim=True).expand_as(x), dim=1)[:, None],
    "masked in place": lambda x: x.clone().masked_fill_(x > 1, 0) + x.clone().index_put_((x > 1,), x.new_zeros(())),
    "padded rows": lambda x: F.pad(x, (0, 0, 1, 2)),
    "padded channels": lambda x: F.pad(x, (0, 0, 0, 0, 1, 1)),
    "channels moved by padding": lambda x: F.pad(x, (0, 0, 0, 0, 1, -1)),
    "expanded by a dimension": lambda x: x.expand(2, *x.shape).sum(0),
    "expanded": lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 4, 4) * 2,
    "converted": lambda x: x.to(torch.float32).double().float().type_as(x),
    "broadcast": lambda x: torch.broadcast_to(x.mean((2, 3), keepdim=True), (len(x), x.shape[1], 4, 4)) * 2,
    "put where another mask is": lambda x: x.clone().index_put_((x.sum((1, 2, 3)) > 0,), x.new_zeros(())),
    "put by numbers": lambda x: x.clone().index_put_((torch.tensor([0, 1]), torch.tensor([1, 3])), x.new_zeros(())),
    "log of the sum": lambda x: x - x.logsumexp(1, keepdim=True),
    "index of the largest": lambda x: x + x.argmax(1, keepdim=True),
    "distances of rows": lambda x: x + torch.cdist(x, x).mean(),
    "distances of positions": lambda x: (
        x * torch.cdist(x.flatten(2).mT, x.flatten(2).mT).mean((1, 2))[:, None, None, None]
    ),
    "distances of channels": lambda x: (
        torch.cdist(x.flatten(2), x.flatten(2)[:1]).softmax(1).mean(2)[..., None, None] * x
    ),
    "pooled channels": lambda x: (
        F.avg_pool1d(x.flatten(2).transpose(1, 2), 2).transpose(1, 2).unflatten(2, x.shape[2:])
    ),
    "matrix product": lambda x: (x.flatten(2).transpose(1, 2) @ x.flatten(2) @ x.flatten(2).mT).mT[..., None],
    "products of all channels": lambda x: torch.bmm(x.flatten(2), x.flatten(2).mT).mean(1)[:, :, None, None] * x,
    "bilinear pooling": lambda x: torch.bmm(x.flatten(2), x.flatten(2).mT).flatten(1)[:, :, None, None],
    "einsum": lambda x: torch.einsum("bchw, bdhw -> bcd", x, x).softmax(-1).mean(2)[:, :, None, None] + x,
    "einsum of three": lambda x: torch.einsum("...hw,...iw,...ik->...hk", x, x, x),
    "einsum of dots without a result": lambda x: torch.einsum("...dc", x).mT,
    "einsum without a result": lambda x: torch.einsum("acbd", torch.einsum("acbd", x)),
    "attention of positions": lambda x: F.scaled_dot_product_attention(*[x.flatten(2).mT[:, None]] * 3)[:, 0].mT[
        ..., None
    ],
    "spectrum": lambda x: torch.fft.rfft2(x).abs(),
    "amplitude and phase": lambda x: torch.fft.irfft(torch.polar(y := torch.fft.rfft(x).abs(), y.log1p()), dim=-1),
    "real and imaginary parts": lambda x: torch.cat(((y := torch.fft.rfft2(x)).real, y.imag), 1),
    "filtered": lambda x: torch.fft.irfftn(torch.fft.rfftn(x, dim=(2, 3), norm="ortho").conj(), dim=(2, 3)),
    "pairs": lambda x: torch.view_as_real(torch.fft.fftshift(torch.fft.fft2(x), dim=(-2, -1))).mean(-1),
    "complex numbers": lambda x: torch.view_as_complex(x.unflatten(3, (4, 2))).angle(),
    "two parts": lambda x: torch.fft.ifft2(torch.complex(*torch.fft.fft2(x).real.chunk(2, 1))).real,
    "spectrum of channels": lambda x: x + torch.fft.fft(x, dim=1).real,
    "shifted channels": lambda x: torch.fft.ifftshift(x),
    "spectrum of all": lambda x: torch.fft.rfftn(x, s=(8, 8)).real,
    "expanded map": lambda x: x * x.mean(1, keepdim=True).expand(x.shape),
    "map expanded along channels": lambda x: x * x.mean(1, keepdim=True).expand(-1, x.shape[1], -1, -1),
    "map expanded by a number": lambda x: x * x.mean(1, keepdim=True).expand(-1, 8, -1, -1),
    "repeated map": lambda x: x * x.mean(1, keepdim=True).repeat(1, x.shape[1], 1, 1),
    "expanded means": lambda x: x * x.mean((2, 3), keepdim=True).expand(-1, -1, *x.shape[2:]),
    "layer norm of a shape": lambda x: F.layer_norm(x, x.shape[1:]),
    "layer norm of numbers": lambda x: F.layer_norm(x, (8, 8, 8)),
    "rms norm of channels": lambda x: F.rms_norm(x.movedim(1, -1), (x.shape[1],)).movedim(-1, 1),
    "other names": lambda x: torch.multiply(torch.subtract(x, torch.negative(x)), torch.less(x, x + 1)),
    "broadcast tensors": lambda x: torch.mul(*torch.broadcast_tensors(x, x.mean(1, keepdim=True))),
    "range of a row": lambda x: torch.sub(*torch.aminmax(x, dim=3, keepdim=True)) * x,
    "quantile of a row": lambda x: x - x.quantile(0.5, 3, keepdim=True),
    "quantiles of a row": lambda x: x - x.quantile(torch.tensor([0.2, 0.9], dtype=x.dtype), 3).sum(0)[..., None],
    "quantile of everything": lambda x: x - x.quantile(0.5),
    "modes of the last": lambda x: x - x.round().mode().values[..., None],
    "third of the last": lambda x: x - x.kthvalue(3).values[..., None],
    "range of everything": lambda x: x / (1 + torch.sub(*torch.aminmax(x)).square()),
    "largest so far": lambda x: x.cummax(2)[0] + x.fliplr().fliplr(),
    "differences of rows": lambda x: x.diff(dim=2),
    "differences of channels": lambda x: x.diff(dim=1),
    "diagonal": lambda x: torch.diag_embed(x.diagonal(dim1=2, dim2=3)),
    "rows of a narrowed tensor": lambda x: x.narrow(2, 1, 4),
    "narrowed channels": lambda x: x.narrow(1, 0, 3),
    "rows split": lambda x: torch.cat(torch.dsplit(x, 2)[::-1], 2) + torch.vstack(torch.vsplit(x, 2)),
    "channels split": lambda x: torch.column_stack(torch.hsplit(x, 2)[::-1]),
    "stacked in depth": lambda x: torch.dstack((x, x)),
    "positions looked up": lambda x: torch.gather(
        x, 3, torch.zeros(1, 1, 1, 2, dtype=torch.long).expand(*x.shape[:3], 2)
    ),
    "positions sorted by a sum": lambda x: (
        x.flatten(2).mT.take_along_dim(x.flatten(2).sum(1)[..., None].argsort(1), 1).mT[..., None]
    ),
    "channels looked up": lambda x: x.gather(1, x.argsort(1)),
    "added at positions": lambda x: x.index_add(3, torch.tensor([0, 2]), x[..., :2]),
    "written to positions": lambda x: x.scatter(3, torch.zeros_like(x[..., :2], dtype=torch.long), x[..., 1:3]),
    "channels filled": lambda x: x.index_fill(1, torch.tensor([1]), 0.0),
    "ranges": lambda x: x * torch.bucketize(x, torch.tensor([0.0, 0.5], dtype=x.dtype)),
    "sorted ranges": lambda x: x * torch.searchsorted(torch.tensor([0.0, 0.5], dtype=x.dtype), x.contiguous()),
    "mean difference": lambda x: x * F.mse_loss(x, x.mean((2, 3), keepdim=True).expand_as(x)),
    "distance of two": lambda x: x * F.pairwise_distance(x.mean((2, 3)), x.amax((2, 3)))[:, None, None, None],
    "inner product": lambda x: x * torch.inner(x.mean((2, 3)), x.amax((2, 3)))[:, :1, None, None],
    "outer product": lambda x: x * torch.outer(x.mean((0, 2, 3)), x.amax((0, 2, 3))).mean(1)[:, None, None],
    "product over dimensions": lambda x: torch.tensordot(x, x, dims=([0, 2, 3], [0, 2, 3])).mean(0)[:, None, None] * x,
    "written in a row": lambda x: x * x.mean((0, 2, 3), keepdim=True).ravel()[:, None, None],
    "added product": lambda x: torch.baddbmm(x.flatten(2), x.flatten(2)[:, :, :8], x[:, 0].repeat(1, 1, 8))[..., None],
}
LAYERS = {
    "transposed": lambda: nn.ConvTranspose2d(8, 4, 2, 2),
    "prelu": lambda: nn.PReLU(8),
    "prelu of one": lambda: nn.PReLU(1),
    "grouped": lambda: nn.Conv2d(8, 8, 3, padding=1, groups=4),
    "grouped transposed": lambda: nn.ConvTranspose2d(8, 4, 2, 2, groups=2),
    "wider grouped transposed": lambda: nn.ConvTranspose2d(8, 16, 2, 2, groups=4),
    "depthwise transposed": lambda: nn.ConvTranspose2d(8, 8, 2, 2, groups=8),
    "similar to another": Similar,
    "blurred": Blurred,
    "blurred by a number": BlurredByNumber,
    "group norm": lambda: nn.GroupNorm(2, 8),
    "group norm without parameters": lambda: nn.GroupNorm(2, 8, affine=False),
    "layer norm without parameters": lambda: nn.LayerNorm([8, 8, 8], elementwise_affine=False),
    "along channels": lambda: AlongChannels(0),
    "more along channels": lambda: AlongChannels(1),
    "fewer along channels": lambda: AlongChannels(-1),
}


class Around(nn.Module):
    """Something by name between two convolutions, and a linear head."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.layer = LAYERS[name]() if name in LAYERS else nn.Identity()
        self.last = nn.Conv2d(self.between(torch.zeros(2, 3, 8, 8)).shape[1], 6, 1)
        self.head = nn.Linear(6, 3)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(torch.relu(self.first(x)))
        return OPERATORS.get(self.name, OPERATORS["nothing"])(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.between(x)).mean((2, 3)))


# Width and unit of the group that the first convolution makes, or why its channels cannot be searched.
EXPECTED = {
    **dict.fromkeys(OPERATORS, (8, 1)),
    "tensor split": (4, 1),
    **dict.fromkeys(("spectrum of channels", "shifted channels"), "channels along which a Fourier transform mixes"),
    "two parts": (4, 1),
    "similar to another": (8, 1),
    "blurred": (8, 1),
    "blurred by a number": "the model's own code breaks at other widths",
    "tensor split at a number": "channels split at numbers that the model's code holds",
    **dict.fromkeys(("glu", "chunk"), (4, 1)),  # both halves keep the same channels
    "pixel shuffle": (2, 1),  # four channels make one
    **dict.fromkeys(("first half", "last half", "middle"), "the model's own code breaks at other widths"),
    "some": "channels picked by number",
    "uneven split": "channels split at numbers that the model's code holds",
    **dict.fromkeys(("unbind channels", "one channel"), "single channels are picked by their number"),
    **dict.fromkeys(
        ("channels by number", "largest three channels", "largest three of the last"), "channels picked by number"
    ),
    "channels and rows by number": "no rule for operator aten",
    **dict.fromkeys(
        ("differences of channels", "narrowed channels", "channels looked up", "channels filled"),
        "channels picked by number",
    ),
    "channels split": (4, 1),
    **dict.fromkeys(("put where another mask is", "put by numbers"), "no rule for operator aten.index_put"),
    **dict.fromkeys(("each element twice", "rows as often as said"), "no rule for operator aten.repeat_interleave"),
    "added product": "single channels are picked by their number",
    "pooled channels": "channels along which is pooled or resized",
    "transposed": (8, 1),
    **dict.fromkeys(("prelu", "prelu of one"), (8, 1)),
    "grouped": (8, 2),
    "grouped transposed": (4, 2),  # pairs of groups: four channels in, two out
    "wider grouped transposed": (8, 2),
    "depthwise transposed": (8, 1),
    "group norm": (8, 4),
    "layer norm without parameters": (8, 1),
    "layer norm of a shape": (8, 1),
    "map expanded by a number": "the model's own code breaks at other widths",
    "layer norm of numbers": "the model's own code breaks at other widths: Given normalized_shape=[8, 8, 8]",
    "group norm without parameters": "a group norm without parameters does not adapt to narrower inputs",
    "bilinear pooling": "dimensions merged in a way that leaves no runs of channels",
    "along channels": (8, 1),
    "channels moved by padding": "channels of zeros added by padding",
    **dict.fromkeys(
        ("more along channels", "fewer along channels"), "a convolution along channels changes their number"
    ),
}


@pytest.mark.parametrize("name", [*OPERATORS, *LAYERS])
def test_channels_are_searchable_across_an_operator_or_it_is_said_why_not(name: str) -> None:
    space = check_network(Around(name).double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    groups = {group.name: group for group in space.groups}
    pinned = [dim.reason for dim in space.fixed if (dim.name, dim.dim) == ("first.weight", 0)]
    assert (groups["last"].max_width, groups["last"].unit) == (6, 1)
    expected = EXPECTED[name]
    if isinstance(expected, str):
        (reason,) = pinned
        assert reason.startswith(expected)
        assert "first" not in groups
    else:
        assert (groups["first"].max_width, groups["first"].unit) == expected
        assert not pinned


def test_channels_of_zeros_stand_where_they_were_padded() -> None:
    # A path and a built network that took them for others would still agree with each other.
    space = WidthSpace.trace(Around("padded channels"), torch.randn(2, 3, 8, 8))
    read = space.layouts["last.weight"][1]
    assert [(segment.group is None, segment.size) for segment in read] == [(True, 1), (False, 8), (True, 1)]


class SplitAttention(nn.Module):
    """ResNeSt's: two groups of channels, a sum of which decides how much of each is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.radix = nn.Conv2d(8, 12, 3, padding=1, groups=2)
        self.gate = nn.Conv2d(6, 12, 1)
        self.last = nn.Conv2d(6, 5, 1)
        self.head = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.radix(torch.relu(self.first(x)))
        split = x.unflatten(1, (2, -1))
        gates = self.gate(split.sum(1).mean((2, 3), keepdim=True)).unflatten(1, (2, -1)).softmax(1)
        return self.head(self.last((split * gates).sum(1)).mean((2, 3)))


class Shuffled(nn.Module):
    """ShuffleNet's: group convolutions with their channels shuffled in between, and added to their input."""

    def __init__(self, groups: int = 2) -> None:
        super().__init__()
        self.groups = groups
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.squeeze = nn.Conv2d(16, 16, 1, groups=groups)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.expand = nn.Conv2d(16, 16, 1, groups=groups)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        y = torch.relu(self.squeeze(x))
        y = y.unflatten(1, (self.groups, -1)).transpose(1, 2).flatten(1, 2)
        return self.head(torch.relu(x + self.expand(self.depthwise(y))).mean((2, 3)))


def test_groups_that_the_models_code_counts_are_narrowed_within() -> None:
    space = check_network(SplitAttention().double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert [(g.name, g.max_width, g.unit) for g in space.groups] == [("first", 4, 1), ("radix", 6, 1), ("last", 5, 1)]
    assert not [f for f in space.fixed if not f.reason.startswith("the network's")]
    assert space.cost(space.narrowest).macs < 0.15 * space.reference.macs


@pytest.mark.parametrize("groups", [2, 4])
def test_shuffled_groups_keep_every_property(groups: int) -> None:
    space = check_network(Shuffled(groups).double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert space.cost(space.narrowest).macs < 0.5 * space.reference.macs
