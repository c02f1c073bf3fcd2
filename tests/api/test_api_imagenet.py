"""The paper's ImageNet recipes on a folder of ImageNet's shape, through the real data path, cut short."""

import pytest
import torch
from photographs import photographs
from tiny_job import Recorder, StoppedError, supernet_method
from torch import nn

import bcnet
from bcnet.data import Augmentation, DataSet, ResizedCrop
from bcnet.errors import DataError
from bcnet.run.parts import augmentation_of, held_out_share
from bcnet.train import load_recipe

SHORT = {"epochs": 2, "batch_size": 4, "warmup_epochs": 0.5, "precision": "fp32"}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.first(x).mean((2, 3)))


def search(data, folder, recipe, **changes):
    asked = {"run_dir": folder, "budget": bcnet.Budget(macs=0.6), "method": supernet_method()} | changes
    asked |= {"space": {"num_choices": 4}, "options": {"threads": 1, "image_size": 16}, "progress": False}
    return bcnet.search(
        Network,
        f"imagenet:{data}",
        training={"recipe": recipe, **SHORT},
        **asked,
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return photographs(tmp_path_factory.mktemp("imagenet"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [
        "resnet50-imagenet",
        pytest.param("mobilenet_v2-imagenet", marks=pytest.mark.slow),
        pytest.param("efficientnet_b0-imagenet", marks=pytest.mark.slow),
    ],
)
def test_an_imagenet_recipe_runs_on_a_folder_of_images(data, tmp_path, recipe):
    outcome = search(data, tmp_path, recipe)
    for figures in outcome.result.networks.values():
        assert figures.test_images == 9
        assert figures.test["top5"] == 100  # of three classes
    assert outcome.result.networks["searched"].macs_ratio <= 0.6


@pytest.mark.slow
def test_a_run_on_files_goes_on_as_if_it_had_never_stopped(data, tmp_path):
    whole = search(data, tmp_path / "whole", "mobilenet_v2-imagenet")
    for stop in (("supernet", 6), ("searched", 3)):
        with pytest.raises(StoppedError):
            search(data, tmp_path / "parts", "mobilenet_v2-imagenet", reporter=Recorder(stop), checkpoint_seconds=0)
    parts = search(data, tmp_path / "parts", "mobilenet_v2-imagenet")
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, parts.network.state_dict()[name])


def test_the_recipe_says_how_images_are_augmented_or_the_data_does():
    pixels, labels = torch.zeros(4, 3, 16, 16, dtype=torch.uint8), torch.arange(4) % 2
    data = DataSet.from_tensors((pixels, labels), (pixels, labels))
    recipe = load_recipe("vgg19-cifar10")
    assert augmentation_of(recipe, data) is data.augmentation
    cropped = recipe.with_changes({"augmentation.kind": "crop", "augmentation.padding": 3})
    assert augmentation_of(cropped, data) == Augmentation(padding=3, flip=True)
    jittered = load_recipe("resnet50-imagenet").with_changes({"augmentation.colour_jitter": 0.4})
    assert augmentation_of(jittered, data) == ResizedCrop(colour_jitter=0.4)


def test_no_more_is_held_out_of_files_than_fits_into_memory(data):
    images = bcnet.data.load(f"imagenet:{data}", image_size=16).train
    assert held_out_share(images, 0.1) == 0.1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bcnet.run.parts._MOST_HELD_OUT", 6)
        assert held_out_share(images, 0.4) == 6 / 24


def test_a_missing_imagenet_leaves_nothing_behind(tmp_path):
    with pytest.raises(DataError, match="has no train and no val: ask for ILSVRC 2012"):
        search(tmp_path, tmp_path / "run", "resnet50-imagenet")
    assert not (tmp_path / "run").exists()
