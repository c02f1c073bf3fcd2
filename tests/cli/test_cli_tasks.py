"""Other tasks, and data of a function of one's own, on the command line: from a search to another budget."""

import json
import re

import pytest
import yaml
from typer.testing import CliRunner

from bcnet.cli.app import app

OWN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bcnet
from bcnet.tasks import DenseRegression


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        return self.last(self.second(self.first(x)))


def loader(count, seed, shuffle=False):
    generator = torch.Generator().manual_seed(seed)
    masks = (torch.rand(count, 6, 6, generator=generator) < 0.3).long()
    x = masks[:, None] + 0.2 * torch.randn(count, 1, 6, 6, generator=generator)
    return DataLoader(TensorDataset(x, masks), 8, shuffle=shuffle)


def loaders():
    return loader(48, 0, True), loader(24, 1), loader(24, 2)


def scores(num_classes=7):
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, num_classes))


def amounts():
    return bcnet.Loaders(*[[(x, y.float().mean((1, 2))) for x, y in part] for part in loaders()])


class Far(bcnet.tasks.Segmentation):
    name = "far segmentation"


def far():
    return Far(2)


def broken():
    raise ValueError("no disk")


def number():
    return 3


number_of_images = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_job.py").write_text(OWN)
    return folder


@pytest.fixture(autouse=True)
def _importable(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], terminal_width=200)


def searching(out, *more, task="segmentation:classes=2,dice=0.5"):
    model = ("--model", "own_job:Net", "--data", "own_job:loaders", "--task", task, "--budget", "0.5", "--out", out)
    small = ("--epochs", "1", "--method", "bcnet:population=4,generations=2,parents=2", "--threads", "1")
    return run("search", *model, *small, "--set", "lr=0.05", "--precision", "fp32", *more)


@pytest.fixture(scope="module")
def searched(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        outcome = searching(folder / "run")
    assert outcome.exit_code == 0, outcome.output
    return folder / "run"


def test_a_segmentation_is_searched_from_the_command_line(searched):
    result = json.loads((searched / "result.json").read_text())
    assert result["task"]["headline"]["key"] == "miou"
    assert json.loads((searched / "settings.json").read_text())["task"] == (
        'segmentation {"classes": 2, "dice": 0.5, "ignore": 255}'
    )
    assert "mIoU" in (searched / "report.html").read_text()


def test_it_is_searched_for_another_budget(searched, tmp_path):
    found = searching(tmp_path / "run", "--budget", "0.3", "--reuse", searched)
    assert found.exit_code == 0, found.output
    assert f"reused from {searched}: supernet" in found.output
    assert json.loads((tmp_path / "run" / "result.json").read_text())["task"]["headline"]["key"] == "miou"


def test_what_was_searched_is_not_taken_for_another_task(searched, tmp_path):
    other = searching(tmp_path / "run", "--reuse", searched, "--until", "prior", task="segmentation:classes=2")
    assert other.exit_code == 0, other.output
    assert "Nothing is reused from" in other.output


@pytest.mark.slow
def test_a_network_by_name_gets_as_many_outputs_as_the_task_says(folder, tmp_path):
    job = ("--model", "own_job:scores", "--data", "own_job:amounts", "--task", "regression:values=1")
    made = run("search", *job, "--method", "uniform", "--budget", "0.5", "--epochs", "1", "--out", tmp_path / "run")
    assert made.exit_code == 0, made.output
    assert "regression" in json.loads((tmp_path / "run" / "result.json").read_text())["task"]["name"]
    exported = run("export", tmp_path / "run", "--model", "own_job:scores")
    assert exported.exit_code == 0, exported.output


def test_a_run_file_says_the_task(folder, tmp_path):
    printed = searching(tmp_path / "run", "--print-settings")
    assert printed.exit_code == 0, printed.output
    document = yaml.safe_load(printed.stdout)
    assert document["task"] == "segmentation:classes=2,ignore=255,dice=0.5"
    file = tmp_path / "run.yaml"
    file.write_text(printed.stdout)
    again = run("search", file, "--print-settings")
    assert yaml.safe_load(again.stdout) == document
    named = searching(tmp_path / "run", "--print-settings", task="own_job:far")
    assert yaml.safe_load(named.stdout)["task"] == "own_job:far"


def test_widths_are_trained_and_baselines_found_for_a_task(tmp_path):
    code = ("--model", "own_job:Net", "--data", "own_job:loaders", "--task", "segmentation:classes=2")
    small = ("--epochs", "1", "--set", "lr=0.05")
    widths = ("--method", "given:values=3,4")
    trained = run("search", *code, *small, *widths, "--out", tmp_path / "given")
    assert trained.exit_code == 0, trained.output
    uniform = run("search", *code, *small, "--method", "uniform", "--budget", "0.5", "--out", tmp_path / "uniform")
    assert uniform.exit_code == 0, uniform.output
    refused = run("search", *code, *small, "--set", "label_smoothing=0.1", *widths, "--out", tmp_path / "no")
    assert refused.exit_code == 2
    assert "label smoothing and distillation are for classification" in refused.stderr
    assert not (tmp_path / "no").exists()
    for name in ("given", "uniform"):
        assert "miou" in json.loads((tmp_path / name / "result.json").read_text())["networks"]["searched"]["test"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "own_job:broken"), "the function of data set 'own_job:broken' .* failed with ValueError: no disk"),
        (("--data", "own_job:number"), "data must be a name, a bcnet.DataSet, .*; got int"),
        (("--data", "own_job:number_of_images"), "has to name a function or class of 'own_job' .* got a int"),
        (("--data", "own_jobs:loaders"), "the module of data set 'own_jobs:loaders' has to be importable"),
        (
            ("--image-size", "9"),
            r"image_size is for raw images, which are resized here; got 9 with inputs of \(6, 6\) pixels",
        ),
        (("--task", "segmentation"), "got no classes"),
        (("--task", "segmentation:classes=3"), "a segmentation of 3 classes; got"),
        (("--set", "label_smoothing=0.1"), "label smoothing and distillation are for classification"),
    ],
)
def test_a_wrong_argument_ends_with_one_message(tmp_path, arguments, message):
    refused = searching(tmp_path / "run", *arguments)
    assert refused.exit_code == 2
    assert refused.stderr.count("\n") == 1
    assert re.search(message, refused.stderr), refused.stderr
    assert not (tmp_path / "run").exists()
