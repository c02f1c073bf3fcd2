"""Networks as people write them, searched in the default way and on a supernet."""

from typing import NamedTuple

import pytest
import torch
from tiny_job import Recorder, supernet_method, tiny_data, tiny_search
from torch import nn
from torch.utils.data import DataLoader

import bcnet
from bcnet.machine.defaults import runs_channels_last

WAYS = {"default": {}, "supernet": {"method": supernet_method()}}


class View(nn.Module):
    """The usual flatten of a feature map."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3), nn.ReLU()
        )
        self.head = nn.Linear(12 * 2 * 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        return self.head(x.view(x.size(0), -1))


class ViewByNumber(View):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).view(-1, 12 * 2 * 2))


class ViewInTraining(View):
    """A branch that only training takes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        return self.head(x.view(x.size(0), -1) if self.training else x.flatten(1))


class ViewWhereNarrow(nn.Module):
    """Vectors of eight numbers: across channels at full width, and across places too where there are fewer of them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 32, 3, padding=1), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.b(torch.relu(self.a(x)))
        vectors = x.view(x.size(0), 4, 8, -1).permute(0, 1, 3, 2).reshape(x.size(0), -1, 8)
        return self.head((vectors / (vectors.norm(dim=-1, keepdim=True) + 1e-6)).mean(1))


class Reshape(View):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))


class NamedLogits(NamedTuple):
    features: torch.Tensor
    logits: torch.Tensor


class Named(View):
    """Outputs by name, as those of Hugging Face's networks, which are dicts with attributes."""

    def forward(self, x: torch.Tensor) -> NamedLogits:
        x = self.features(x)
        return NamedLogits(x, self.head(x.flatten(1)))


class ByKey(Named):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return super().forward(x)._asdict()


class Volume(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU())
        self.b, self.head = nn.Conv3d(8, 12, 3, 2, 1), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.b(self.a(x))).mean((2, 3, 4)))


class Bank(nn.Module):
    """Kernels of five dimensions in a network of images."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(8, 3)
        self.bank = nn.Parameter(torch.randn(4, 8, 8, 3, 3) * 0.1)
        self.mix = nn.Parameter(torch.randn(4, 1, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kernel = (self.bank * self.mix.softmax(0)).sum(0)
        return self.head(torch.relu(nn.functional.conv2d(torch.relu(self.a(x)), kernel, padding=1)).mean((2, 3)))


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(16, 2)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([self.tower(picture).mean((2, 3)) for picture in (left, right)], 1))


def loaders(make, classes: int):
    return tuple(DataLoader([(make(), i % classes) for i in range(n)], 8) for n in (48, 24, 16))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("network", [View, ViewByNumber, ViewInTraining, ViewWhereNarrow])
def test_the_usual_flatten_is_searched_with_contiguous_images(tmp_path, network, way):
    notes = []

    class Notes(Recorder):
        def note(self, text):
            notes.append(text)

    outcome = tiny_search(tmp_path, model=network, reporter=Notes(), **WAYS[way])
    assert any(note.startswith("Images and weights are contiguous") for note in notes)
    images = torch.randn(2, 1, 8, 8)
    assert outcome.network(images).shape == (2, 3)
    assert all(p.is_contiguous() for p in outcome.network.parameters())
    assert bcnet.load(tmp_path, network)(images).shape == (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("network", [Named, ByKey])
def test_logits_may_be_one_of_several_outputs_by_name(tmp_path, network, way):
    outcome = tiny_search(tmp_path / "run", model=network, report=True, **WAYS[way])
    assert type(outcome.network(torch.randn(2, 1, 8, 8))).__name__ in ("NamedLogits", "dict")
    assert bcnet.export_run(tmp_path / "run", network, format="onnx").difference < 1e-4


@pytest.mark.slow
def test_wrappers_whose_forward_takes_anything_are_exported(tmp_path):
    tiny_search(tmp_path / "run", model=lambda: nn.DataParallel(Reshape()))
    for name in ("onnx", "pt2"):
        assert bcnet.export_run(tmp_path / "run", lambda: nn.DataParallel(Reshape()), format=name).difference < 1e-4


@pytest.mark.slow
def test_the_usual_flatten_from_loaders_and_as_a_baseline(tmp_path):
    data = loaders(lambda: torch.randn(8, 8, 1).permute(2, 0, 1), 3)
    for method in (bcnet.Uniform(), bcnet.Balanced()):
        outcome = tiny_search(tmp_path / method.name, model=View, data=data, method=method)
        assert outcome.result.method == method.name


@pytest.mark.parametrize(
    ("network", "expected"), [(View, False), (ViewInTraining, False), (ViewWhereNarrow, True), (Reshape, True)]
)
def test_the_memory_format_is_chosen_by_a_trial(network, expected):
    for images in (torch.randn(2, 1, 8, 8), tiny_data().normaliser(tiny_data().test.pixels[:2])):
        model = network()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        state = torch.random.get_rng_state()
        assert runs_channels_last(model, images) is expected
        assert torch.equal(state, torch.random.get_rng_state())
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("network", "shape"), [(Volume, (1, 4, 6, 6)), (Bank, (1, 6, 6))])
def test_tensors_of_five_dimensions_are_searched(tmp_path, network, shape, way):
    data = loaders(lambda: torch.randn(*shape), 3)
    outcome = tiny_search(tmp_path, model=network, data=data, **WAYS[way])
    assert outcome.network(torch.randn(2, *shape)).shape == (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", [tuple, dict])
def test_several_inputs_are_searched(tmp_path, form, way):
    def make():
        pictures = (torch.randn(1, 8, 8), torch.randn(1, 10, 10))
        return dict(zip(("left", "right"), pictures, strict=True)) if form is dict else pictures

    outcome = tiny_search(tmp_path, model=Two, data=loaders(make, 2), **WAYS[way])
    assert outcome.network(torch.randn(2, 1, 8, 8), torch.randn(2, 1, 10, 10)).shape == (2, 2)
