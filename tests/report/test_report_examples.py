"""Examples: test images as they were given, with what the networks of the run give for them."""

import base64
import io
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_job import tiny_data, tiny_search
from torch.utils.data import DataLoader, TensorDataset

import bcnet
from bcnet.tasks import Regression


def pixels(cell):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(cell["picture"]))))


def test_examples_are_test_images_and_what_the_networks_say_of_them(finished):
    found = bcnet.Run.open(finished.run_dir).examples
    assert found["columns"] == ["input", "target", "original", "Uniform", "searched"]
    test = tiny_data().test  # 30 images
    numbers = [3, 11, 18, 26]
    assert [row[0]["words"] for row in found["rows"]] == [f"number {number}" for number in numbers]
    normaliser = tiny_data().normaliser
    outputs = finished.network(normaliser(test.pixels[numbers])).softmax(dim=1).detach()
    for row, number, chances in zip(found["rows"], numbers, outputs, strict=True):
        shown = pixels(row[0])
        assert shown.shape == (128, 128, 3)
        np.testing.assert_allclose(shown[::16, ::16, 0], test.pixels[number, 0], atol=1)
        assert row[1]["words"] == str(int(test.labels[number]))
        assert row[4]["words"] == f"{int(chances.argmax())} ({float(chances.max()):.0%})"
        assert all(cell["picture"] is None for cell in row[1:])


def test_the_page_shows_them_with_words_for_those_who_cannot_see(finished):
    page = (finished.run_dir / "report.html").read_text()
    pictures = re.findall(r'<img src="data:image/png;base64,[^"]+" alt="([^"]*)">', page)
    assert pictures == [f"input, number {number}" for number in (3, 11, 18, 26)]
    assert "number 3, 11, 18, 26 of the test set" in page


@pytest.mark.parametrize("size", [4, 30])
def test_which_images_are_shown_does_not_depend_on_the_batches(size, tmp_path):
    test = tiny_data().test
    parts = [DataLoader(TensorDataset(test.pixels / 255, test.labels), 15) for _ in range(2)]
    last = DataLoader(TensorDataset(test.pixels / 255, test.labels), size)
    tiny_search(
        tmp_path, data=bcnet.Loaders(*parts, last, class_names=("plain", "rows", "columns")), options={"examples": 3}
    )
    rows = bcnet.Run.open(tmp_path).examples["rows"]
    assert [row[0]["words"] for row in rows] == ["number 5", "number 15", "number 25"]
    names = ("plain", "rows", "columns")
    assert [row[1]["words"] for row in rows] == [names[int(test.labels[n])] for n in (5, 15, 25)]


def test_none_are_shown_where_none_are_wanted(tmp_path):
    tiny_search(tmp_path, options={"examples": 0}, report=True)
    assert not (tmp_path / "examples.json").exists()
    assert 'id="examples"' not in (tmp_path / "report.html").read_text()


class Plain(Regression):
    """A task of somebody's own that shows nothing."""

    name = "plain"

    def show(self, pictures, targets, outputs=None, *, names=()):
        return None


def test_a_task_that_shows_nothing_says_how_it_could(tmp_path):
    x = torch.randn(40, 1, 8, 8)
    loaders = [DataLoader(TensorDataset(x, x.mean((1, 2, 3))), 10) for _ in range(3)]

    class One(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Conv2d(1, 8, 3), torch.nn.Linear(8, 1)

        def forward(self, x):
            return self.last(self.first(x).mean((2, 3)))

    tiny_search(tmp_path, model=One, data=loaders, task=Plain(), report=True)
    assert json.loads((tmp_path / "examples.json").read_text())["rows"] == []
    assert (
        "The task plain shows no examples; a custom task can, with its method" in (tmp_path / "report.html").read_text()
    )
