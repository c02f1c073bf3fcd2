"""Models that come with trained weights: their weights are used, and what is done with them is said."""

import pytest
import torch
from networks import TRICKY
from tiny_job import Notes, TinyNetwork, tiny_data, tiny_search
from torch import nn

import bcnet
from bcnet.errors import RecipeError
from bcnet.models import create
from bcnet.supernet.initialisation import is_trained

STILL = bcnet.Recipe(lr=1e-6, batch_size=16, epochs=1, precision="fp32")


class WithoutNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 16, 3), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.b(torch.relu(self.a(x)))).mean((2, 3)))


def train(network: nn.Module, epochs: int) -> nn.Module:
    data = tiny_data()
    images, labels = data.normaliser(data.train.pixels), data.train.labels
    optimizer = torch.optim.SGD(network.parameters(), 0.2, 0.9)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
    return network


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    return train(TinyNetwork(), 60).state_dict()


def module_of(trained):
    network = TinyNetwork()
    network.load_state_dict(trained)
    return network


@pytest.mark.parametrize("form", ["module", "factory"])
@pytest.mark.parametrize("way", ["search", "uniform"])
def test_trained_weights_are_where_all_networks_start(tmp_path, trained, form, way):
    model = module_of(trained) if form == "module" else lambda: module_of(trained)
    reporter = Notes()
    method = bcnet.Trainings(effort="small") if way == "search" else bcnet.Uniform()
    outcome = tiny_search(tmp_path, model=model, method=method, training=STILL, reporter=reporter)
    assert outcome.result.networks["original"].test["top1"] > 95
    assert any(note.startswith("The model comes with trained weights: all networks start") for note in reporter.notes)


def test_scratch_draws_new_weights_and_says_so(tmp_path, trained):
    reporter = Notes()
    outcome = tiny_search(
        tmp_path,
        model=lambda: module_of(trained),
        training=STILL,
        start="scratch",
        reporter=reporter,
        method=bcnet.Trainings(effort="small"),
    )
    assert outcome.result.networks["original"].test["top1"] < 80
    assert any("Final networks do not start from them (start='scratch')" in note for note in reporter.notes)


@pytest.mark.slow
def test_a_factory_can_be_said_to_be_pretrained(tmp_path):
    outcome = tiny_search(tmp_path / "factory", start="pretrained", method=bcnet.Trainings(effort="small"))
    assert outcome.network is not None
    with pytest.raises(RecipeError, match="needs weights to start from"):
        tiny_search(
            tmp_path / "name",
            model="resnet_digits",
            data="digits",
            start="pretrained",
            method=bcnet.Trainings(effort="small"),
        )


def test_other_weights_are_another_run(tmp_path, trained):
    tiny_search(tmp_path, model=lambda: module_of(trained), method=bcnet.Trainings(effort="small"))
    others = {name: tensor * 1.5 if tensor.is_floating_point() else tensor for name, tensor in trained.items()}
    with pytest.raises(bcnet.BCNetError, match="pretrained"):
        tiny_search(tmp_path, model=lambda: module_of(others), method=bcnet.Trainings(effort="small"))


@pytest.mark.parametrize("name", [*TRICKY, "resnet20", "vgg19_quarter", "mobilenetv2"])
def test_new_networks_count_as_not_trained(name):
    torch.manual_seed(0)
    assert not is_trained(TRICKY[name]() if name in TRICKY else create(name, 10).build())


def test_trained_networks_are_seen_with_and_without_batch_norm(trained):
    assert is_trained(module_of(trained))
    torch.manual_seed(0)
    assert is_trained(train(WithoutNorm(), 200))
