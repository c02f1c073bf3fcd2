import importlib
import sys

import pytest
import torch
from torch import nn

from bcnet import models
from bcnet.errors import ModelError

FACTORIES = """
from functools import partial
from torch import nn

NUMBER = 3

class Net(nn.Linear):
    def __init__(self, num_classes=10, in_channels=3):
        super().__init__(in_channels, num_classes)

def grey(num_classes=10, in_channels=1):
    return Net(num_classes, in_channels)

def plain():
    return nn.Linear(3, 5)

def passes_on(**kwargs):
    return Net(**kwargs)

def positional(num_classes=4, /):
    return nn.Linear(3, num_classes)

def failing():
    raise RuntimeError("no weights here")

def nothing():
    return None
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "my_factories.py").write_text(FACTORIES)
    (tmp_path / "my_broken.py").write_text("import no_such_package_of_mine")
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_factories"
    sys.modules.pop("my_factories", None)


@pytest.fixture(scope="module")
def torchvision():
    return pytest.importorskip("torchvision")


@pytest.mark.parametrize(
    ("member", "shape"), [("Net", (7, 2)), ("plain", (5, 3)), ("passes_on", (7, 3)), ("positional", (4, 3))]
)
def test_a_factory_is_given_what_its_signature_accepts(package, member, shape):
    model = models.create(f"{package}:{member}", num_classes=7, in_channels=2).build()
    assert model.weight.shape == shape


@pytest.mark.parametrize("place", ["my_factories.py", "./my_factories.py", "{}/my_factories.py"])
def test_a_factory_is_named_by_its_file(package, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"{place.format(tmp_path)}:plain"
    assert models.create(name).build().weight.shape == (5, 3)
    assert models.imports_code(name)


def test_a_file_that_another_module_hides_is_not_taken_for_it(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ModelError, match=r"has to come from that file; but 'json' is .*__init__.py, .*: rename the file"
    ):
        models.create("json.py:plain")


def test_input_sizes(package):
    assert models.create("resnet_digits").input_size == (1, 8, 8)
    assert models.create("vgg19").input_size == (3, 32, 32)
    assert models.create("vgg19", image_size=64).input_size == (3, 64, 64)
    assert models.create(f"{package}:plain").input_size == (3, 224, 224)
    assert models.create(f"{package}:grey", image_size=28).input_size == (1, 28, 28)
    assert models.create(f"{package}:grey", in_channels=3, image_size=28).input_size == (3, 28, 28)
    assert models.create(f"{package}:Net", in_channels=1, image_size=28).input_size == (1, 28, 28)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vgg1", r"got 'vgg1' \(nearest: vgg19\); ours are vgg19, vgg19_quarter, mobilenetv2"),
        ("", "a model must be a name of ours"),
        (":factory", "FILE.py:factory in this folder; got ':factory'"),
        ("my_factories:", "in this folder; got 'my_factories:'"),
        ("../my_factories.py:plain", "in this folder; got '../my_factories.py:plain'"),
        ("nowhere/my_factories.py:plain", "importing 'nowhere.my_factories' failed"),
        ("my_factories:plain:x", "got 'my_factories:plain:x'"),
        ("my factories:plain", "got 'my factories:plain'"),
        (".my_factories:plain", "got '.my_factories:plain'"),
        ("no_such_module_of_mine:net", "'no_such_module_of_mine' failed with ModuleNotFoundError.*PYTHONPATH"),
        ("my_broken:net", "No module named 'no_such_package_of_mine': it is found, but"),
        ("my_factories:missing", r"my_factories.py\); got no such name; there are Net, failing, grey, nothing"),
        ("my_factories:NUMBER", "got a int"),
    ],
)
def test_names_that_do_not_do(package, name, message):
    with pytest.raises(ModelError, match=message):
        models.create(name)


def test_factories_that_fail(package):
    with pytest.raises(ModelError, match="failed with RuntimeError: no weights here"):
        models.create(f"{package}:failing").build()
    with pytest.raises(ModelError, match=r"has to return a torch.nn.Module; got NoneType"):
        models.create(f"{package}:nothing").build()


@pytest.mark.parametrize("setting", ["num_classes", "in_channels", "image_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_settings_are_positive_ints(setting, value):
    with pytest.raises(ModelError, match=f"{setting} must be a positive int; got {value!r}"):
        models.create("vgg19", **{setting: value})


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_a_missing_package_says_what_to_install(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.models", None)
    with pytest.raises(ModelError, match=f"need the package {package}.*pip install {package}"):
        models.create(f"{package}:resnet18")


def test_builds_that_do_not_match_are_told_from_a_missing_package(monkeypatch):
    def without_operators(module):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(importlib, "import_module", without_operators)
    with pytest.raises(ModelError, match=r"need the package timm;.*: torch and torchvision are of different builds"):
        models.create("timm:resnet18")


@pytest.mark.parametrize("name", ["resnet18", "googlenet"])
def test_torchvision(torchvision, name):
    spec = models.create(f"torchvision:{name}", num_classes=7)
    assert spec.input_size == (3, 224, 224)
    model = spec.build()
    assert isinstance(model, nn.Module)
    assert model.fc.out_features == 7


def test_torchvision_errors(torchvision):
    with pytest.raises(ModelError, match=r"got 'resnet51' \(nearest: resnet"):
        models.create("torchvision:resnet51")
    with pytest.raises(ModelError, match="take 3 input channels; got 1"):
        models.create("torchvision:resnet18", in_channels=1)


def test_timm(torchvision):
    pytest.importorskip("timm")
    spec = models.create("timm:mobilenetv3_small_050", num_classes=7, in_channels=1)
    assert spec.input_size == (1, 224, 224)
    assert spec.build().eval()(torch.randn(2, 1, 64, 64)).shape == (2, 7)
    with pytest.raises(ModelError, match=r"timm's \d+ models; got 'resnt18'"):
        models.create("timm:resnt18")
