import json

import pytest
import torch
from tiny_job import TinyNetwork

from bcnet import WidthSpace
from bcnet.errors import ModelError, WidthError
from bcnet.models import create
from bcnet.run.widths import resolve_widths
from bcnet.supernet import describe


@pytest.fixture(scope="module")
def workload():
    model = TinyNetwork()
    return WidthSpace.trace(model, torch.zeros(2, 1, 8, 8)), model


def test_widths_come_in_many_forms(workload, tmp_path):
    space, model = workload
    names = [group.name for group in space.groups]
    table = dict(zip(names, (5, 7), strict=True))
    files = {
        "list.json": [5, 7],
        "table.json": table,
        "result.json": {"widths": table, "networks": {}},
        "architecture.json": describe(model, space, (5, 7)),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    for given in ((5, 7), [5, 7], "5,7", "5, 7", table, tmp_path, *(tmp_path / name for name in files)):
        assert resolve_widths(given, space, model) == (5, 7)
        if not isinstance(given, (tuple, list, dict)):
            assert resolve_widths(str(given), space, model) == (5, 7)


def test_published_widths_are_known_by_the_name_of_the_model():
    spec = create("vgg19")
    model = spec.build()
    space = WidthSpace.trace(model, torch.zeros(2, *spec.input_size))
    half = resolve_widths("published:0.5x", space, model, "vgg19")
    assert half == resolve_widths("published:0.5", space, model, "vgg19")
    assert half[:4] == (44, 51, 128, 128)
    assert space.cost(half).macs == pytest.approx(197.4e6, abs=0.1e6)
    with pytest.raises(ModelError, match=r"exist for 0\.5, 0\.464.*got '0\.6x'"):
        resolve_widths("published:0.6x", space, model, "vgg19")
    with pytest.raises(ModelError, match=r"exist for mobilenetv2, vgg19, torchvision:mobilenet_v2.*got 'resnet20'"):
        resolve_widths("published:0.5x", space, model, "resnet20")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a,b", "whole numbers with commas.*got 'a,b'"),
        ("5", "one entry per group, 2 here; got 1"),
        ("5,99", r"an int in \[1, 12\].*got 99"),
        ((5, 7.0), "got 7.0"),
        ("gone.json", "gone.json cannot be read"),
        ({"first": 5}, "name every group of the network"),
    ],
)
def test_other_widths_are_refused(workload, given, message):
    with pytest.raises(WidthError, match=message):
        resolve_widths(given, *workload)


@pytest.mark.parametrize("content", ["", "{", "3", '{"widths": {"x": 1}}', "[1, null]"])
def test_a_file_without_widths_is_refused(workload, tmp_path, content):
    (tmp_path / "w.json").write_text(content)
    with pytest.raises(WidthError):
        resolve_widths(tmp_path / "w.json", *workload)
