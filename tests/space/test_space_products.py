"""Products that are no layers: attention, recurrent layers and matrix products, counted exactly, and what is not."""

import string

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from properties import check_network, check_path_equals_built, independent_cost
from torch import nn
from torch.nn import functional as F
from typer.testing import CliRunner

import bcnet
from bcnet.cli.app import app
from bcnet.space import WidthSpace
from bcnet.space.rules.products import _matmul_letters


class NonLocal(nn.Module):
    """Wang et al. (2018): positions attend to each other, through a bottleneck of their own width."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.theta, self.phi, self.g = (nn.Conv2d(8, 6, 1) for _ in range(3))
        self.out = nn.Conv2d(6, 8, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        query, key, value = (layer(x).flatten(2) for layer in (self.theta, self.phi, self.g))
        weights = torch.softmax(query.transpose(1, 2) @ key, dim=-1)
        seen = (weights @ value.transpose(1, 2)).transpose(1, 2).unflatten(2, x.shape[2:])
        return self.head((x + self.out(seen)).mean((2, 3)))


class Attention(NonLocal):
    """The same by torch's own operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        query, key, value = (layer(x).flatten(2).transpose(1, 2) for layer in (self.theta, self.phi, self.g))
        seen = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).unflatten(2, x.shape[2:])
        return self.head((x + self.out(seen)).mean((2, 3)))


class Masked(Attention):
    """And under a mask."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        query, key, value = (layer(x).flatten(2).transpose(1, 2) for layer in (self.theta, self.phi, self.g))
        mask = torch.ones(query.shape[1], query.shape[1], dtype=torch.bool).tril()
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.head((x + self.out(seen.transpose(1, 2).unflatten(2, x.shape[2:]))).mean((2, 3)))


@pytest.mark.parametrize("network", [NonLocal, Attention, Masked])
def test_attention_is_searched_and_counted_at_all_widths(network) -> None:
    space = check_network(network().double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert [(g.name, g.max_width) for g in space.groups] == [("stem", 8), ("theta", 6), ("g", 6)]
    assert not space.uncounted
    products = 2 * 16 * 16 * 6  # all pairs of positions, twice
    layers = 16 * (3 * 9 * 8 + 4 * 8 * 6) + 8 * 4
    assert space.reference.macs == products + layers
    assert sum(int(layer.macs(torch.tensor([space.full]).numpy())[0]) for layer in space.layers) == products + layers


class Heads(nn.Module):
    """Attention by as many heads as the channels allow, each of four features that stay together."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.masked = masked
        self.stem = nn.Conv2d(3, 16, 1)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x)).flatten(2).unflatten(1, (-1, 4)).transpose(2, 3)  # (batch, heads, positions, 4)
        mask = torch.ones(x.shape[2], x.shape[2], dtype=torch.bool).tril() if self.masked else None
        seen = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        return self.head(seen.transpose(2, 3).flatten(1, 2).mean(2))


class Pooled(nn.Module):
    """Means of the features under four maps of weights, as vectors of local descriptors have them, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.maps, self.head = nn.Conv2d(3, 12, 3), nn.Conv2d(12, 4, 1), nn.Linear(48, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        means = self.maps(x).flatten(2).softmax(-1) @ x.flatten(2).transpose(1, 2)  # (batch, 4, 12)
        return self.head(means.flatten(1))


def test_of_two_dimensions_of_channels_made_one_the_wider_is_searched() -> None:
    space = check_network(Pooled().double(), torch.randn(2, 3, 6, 6, dtype=torch.float64))
    assert [group.name for group in space.groups] == ["stem"]
    assert {"dimensions merged in a way that leaves no runs of channels"} < {fixed.reason for fixed in space.fixed}


@pytest.mark.parametrize("masked", [False, True])
def test_heads_are_searched(masked: bool) -> None:
    space = check_network(Heads(masked).double(), torch.randn(2, 3, 4, 4, dtype=torch.float64))
    assert [(group.name, group.max_width, group.unit) for group in space.groups] == [("stem", 4, 1)]


class Recurrent(nn.Module):
    """Columns of features read one after the other."""

    def __init__(self, layer: nn.Module, features: int) -> None:
        super().__init__()
        self.stem, self.mix = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 10, 1)
        self.layer, self.head = layer, nn.Linear(features, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.mix(torch.relu(self.stem(x))).mean(2).transpose(1, 2)
        return self.head(self.layer(x)[0].mean(1))


assigned = pytest.mark.filterwarnings("ignore:The tensor attributes self.layer._flat_weights")  # by torch.export


@assigned
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    ("layer", "features", "each"),
    [
        (lambda: nn.GRU(10, 7, batch_first=True), 7, 3 * 7 * (10 + 7)),
        (lambda: nn.LSTM(10, 7, batch_first=True), 7, 4 * 7 * (10 + 7)),
        (lambda: nn.LSTM(10, 7, proj_size=3, batch_first=True), 3, 4 * 7 * (10 + 3) + 7 * 3),
        (lambda: nn.RNN(10, 7, batch_first=True), 7, 7 * (10 + 7)),
        (
            lambda: nn.GRU(10, 7, num_layers=2, bidirectional=True, batch_first=True),
            14,
            2 * 3 * 7 * (10 + 7) + 2 * 3 * 7 * (14 + 7),
        ),
    ],
)
def test_recurrent_layers_read_what_comes_and_keep_their_state(layer, features, each) -> None:
    space = check_network(Recurrent(layer(), features).double(), torch.randn(2, 3, 5, 9, dtype=torch.float64))
    assert [(g.name, g.max_width) for g in space.groups] == [("stem", 8), ("mix", 10)]
    assert space.reference.macs == 9 * each + 5 * 9 * (27 * 8 + 8 * 10) + features * 4
    assert not space.uncounted


class StepByStep(nn.Module):
    """A cell that goes along the rows of a map, one after the other."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.before = nn.Conv2d(4, 8, 1)
        self.cell = cell
        self.head = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.before(torch.relu(self.stem(x))).mean(3)  # (batch, 8, rows)
        state = None
        for row in rows.unbind(2):
            state = self.cell(row, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


@pytest.mark.parametrize(("cell", "gates"), [(nn.GRUCell, 3), (nn.LSTMCell, 4), (nn.RNNCell, 1)])
def test_recurrent_cells_read_what_comes_and_keep_their_state(cell, gates) -> None:
    space = check_network(StepByStep(cell(8, 6)).double(), torch.randn(2, 3, 5, 9, dtype=torch.float64))
    assert [(g.name, g.max_width) for g in space.groups] == [("stem", 4), ("before", 8)]
    assert space.reference.macs == 5 * 9 * (27 * 4 + 4 * 8) + 5 * gates * 6 * (8 + 6) + 6 * 4
    assert not space.uncounted


class Stacked(nn.Module):
    """Convolutions behind a recurrent layer, whose state has channels of their map."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.state = nn.Conv1d(3, 8, 3, padding=1), nn.Conv1d(3, 6, 1)
        self.layer, self.last, self.head = nn.GRU(8, 6, batch_first=True), nn.Conv1d(6, 5, 1), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = self.state(x).mean(2)[None]
        x = self.layer(torch.relu(self.stem(x)).transpose(1, 2), state)[0]
        return self.head(self.last(x.transpose(1, 2)).mean(2))


@assigned
def test_what_a_recurrent_layer_gives_and_begins_with_is_held() -> None:
    space = check_network(Stacked().double(), torch.randn(2, 3, 7, dtype=torch.float64))
    assert [g.name for g in space.groups] == ["stem", "last"]
    held = {fixed.name: fixed.reason for fixed in space.fixed}
    assert held["state.weight"] == "a recurrent layer keeps its number of features"


def test_a_narrow_recurrent_layer_is_one_of_its_own() -> None:
    network, x = Recurrent(nn.LSTM(10, 7, batch_first=True, bidirectional=True), 14), torch.randn(16, 3, 5, 9)
    space = bcnet.trace(network, x)
    before = [id(weight) for weight in network.layer._flat_weights]
    narrow = bcnet.narrow(network, space, space.narrowest, calibrate=[x], reconstruct=True)
    assert narrow.layer.input_size == space.narrowest[1]
    assert [id(weight) for weight in narrow.layer._flat_weights] == [*map(id, narrow.layer.parameters())]
    assert [id(weight) for weight in network.layer._flat_weights] == before
    narrow(x).sum().backward()
    assert all(parameter.grad is not None for parameter in narrow.parameters())


@given(st.integers(1, 4), st.integers(1, 4))
def test_letters_of_a_matrix_product_are_those_of_torch(first, second) -> None:
    sizes = dict(zip(string.ascii_lowercase, (2, 3), strict=False)) | {"x": 4, "y": 5, "z": 6}
    equation = _matmul_letters(first, second)
    terms = equation.partition("->")[0].split(",")
    a, b = (torch.randn([sizes[letter] for letter in term]) for term in terms)
    assert (a.ndim, b.ndim) == (first, second)
    torch.testing.assert_close(torch.einsum(equation, a, b), a @ b)


class Summed(nn.Module):
    """A product by einsum whose first operand has positions that the result does not."""

    def __init__(self, equation: str) -> None:
        super().__init__()
        self.equation = equation
        self.stem, self.weight = nn.Conv2d(3, 8, 3), nn.Parameter(torch.randn(8, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum(self.equation, self.stem(x).flatten(2), self.weight)


@pytest.mark.parametrize("equation", ["bcs,ck->bk", "bcs,ck->bsk", "bcs,cj->b"])
def test_an_einsum_is_counted_as_torch_computes_it(equation) -> None:
    model, x = Summed(equation).double(), torch.randn(2, 3, 6, 6, dtype=torch.float64)
    check_path_equals_built(model, WidthSpace.trace(model, x), x, (3,))


class Transformed(nn.Module):
    """A product that no rule knows of: a Fourier transform."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 1), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(torch.fft.rfft2(self.first(x)).abs()).mean((2, 3)))


def test_what_cannot_be_counted_is_named(monkeypatch) -> None:
    space = WidthSpace.trace(Transformed(), torch.randn(2, 3, 8, 8))
    (named,) = space.uncounted
    assert named.startswith("aten.fft_rfft2.default (")
    assert space.uncounted_note.startswith("MACs leave out what these operators multiply: aten.fft_rfft2")
    assert WidthSpace.trace(NonLocal(), torch.randn(2, 3, 8, 8)).uncounted_note == ""
    monkeypatch.syspath_prepend(str(__file__).rpartition("/")[0])
    told = CliRunner().invoke(app, ["profile", "test_space_products:Transformed", "--image-size", "8"])
    assert "MACs leave out what these operators multiply: aten.fft_rfft2" in told.output, told.output


class TokenMixing(nn.Module):
    """A linear layer along positions, which are pooled afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.mix = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 12)
        self.last, self.head = nn.Conv2d(8, 6, 1), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(F.max_pool2d(self.mix(self.stem(x)), 2)).mean((2, 3)))


def test_positions_that_a_layer_makes_are_counted_as_they_are_after_pooling() -> None:
    space = check_network(TokenMixing().double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert space.reference.macs == 64 * 27 * 8 + 8 * 8 * 8 * 12 + 4 * 6 * 8 * 6 + 6 * 3
    (reason,) = (f.reason for f in space.fixed if f.name == "mix.weight" and f.dim == 0)
    assert reason == "channels along which is pooled or resized"


@pytest.mark.slow
def test_a_run_tells_what_its_costs_leave_out(tmp_path) -> None:
    from tiny_job import Recorder, TinyNetwork, tiny_search

    notes = []

    class Told(Recorder):
        def note(self, text):
            notes.append(text)

    class Fourier(TinyNetwork):
        def forward(self, x):
            return self.head(self.second(self.first(x)).mean((2, 3)) + torch.fft.fft(x).abs().mean())

    tiny_search(tmp_path, model=Fourier, reporter=Told(), report=True)
    assert any(note.startswith("MACs leave out what these operators") for note in notes)
    space = bcnet.Run.open(tmp_path).space
    assert len(space.uncounted) == 1
    assert "MACs leave out what these operators" in (tmp_path / "report.html").read_text()


class Pair(nn.Module):
    """Two towers, whose features are multiplied with each other."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 8, 3)
        self.right = nn.Conv2d(3, 6, 3)
        self.pair = nn.Bilinear(8, 6, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = (torch.relu(tower(x)).mean((2, 3)) for tower in (self.left, self.right))
        return self.head(torch.relu(self.pair(left, right)))


def test_a_bilinear_layer_counts_a_product_for_each_pair_of_features() -> None:
    model, x = Pair().double(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    space = WidthSpace.trace(model, x)
    assert [group.name for group in space.groups] == ["left", "right", "pair"]
    for widths in ((8, 6, 5), (3, 5, 2)):
        network = bcnet.narrow(model, space, widths, weights="first")
        others, params = independent_cost(network, x)  # torch's own counter leaves it out
        assert tuple(space.cost(widths)) == (others + network.pair.weight.numel(), params)
        torch.testing.assert_close(bcnet.Supernet(model, space)(x, widths), network(x))
