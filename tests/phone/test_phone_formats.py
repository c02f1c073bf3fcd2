"""ncnn, MNN and ExecuTorch: files give what PyTorch gives, for any widths, and what they cannot hold is named."""

import io
import sys
import zipfile

import numpy as np
import pytest
import torch
from networks import tricky_network
from tiny_job import TinyNetwork, tiny_data, tiny_search
from torch import nn

import bcnet
from bcnet.errors import ExportError
from bcnet.export import FORMATS, installed_backends
from bcnet.latency.engines import engine_of
from bcnet.machine.measure import mnn_call, ncnn_call
from bcnet.models import create
from bcnet.phone import ExecuTorch, ExecuTorchInt8, Mnn, Ncnn
from bcnet.space import WidthSpace
from bcnet.supernet import build

ncnn = pytest.importorskip("ncnn")
pytest.importorskip("executorch")
NETWORKS = {"resnet_digits": (1, 8), "mobilenetv2": (3, 32)}


def check_same(format, network, inputs):
    content = format.write(network, inputs, {}, opened="nothing")
    with torch.no_grad():
        expected = network(**inputs) if isinstance(inputs, dict) else network(inputs)
    found = format.runner(content, network, 1)(inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "name"),
    [
        (Ncnn, "resnet_digits"),
        pytest.param(Ncnn, "mobilenetv2", marks=pytest.mark.slow),
        pytest.param(Mnn, "mobilenetv2", marks=pytest.mark.slow),
        pytest.param(ExecuTorch, "resnet_digits", marks=pytest.mark.slow),
    ],
)
def test_files_give_what_narrow_networks_give(format, name):
    channels, size = NETWORKS[name]
    model = create(name, in_channels=channels, image_size=size).build().eval()
    image = torch.randn(1, channels, size, size)
    space = WidthSpace.trace(model, image)
    check_same(format(), build(model, space, space.uniform(macs=0.4)).eval(), image)


@pytest.mark.parametrize("name", ["Gate", "Halves"])
def test_ncnn_holds_what_code_does_with_channels(name):
    model, space, x = tricky_network(name)
    check_same(Ncnn(), build(model.float(), space, space.narrowest).eval(), x.float()[:1])


@pytest.mark.slow
def test_a_zip_of_ncnn_is_the_same_each_time_and_takes_one_input():
    network = TinyNetwork().eval()
    image = torch.randn(1, 1, 8, 8)
    content = Ncnn().write(network, image, {})
    assert Ncnn().write(network, image, {}) == content
    assert zipfile.ZipFile(io.BytesIO(content)).namelist() == ["network.ncnn.param", "network.ncnn.bin"]
    with torch.no_grad():
        np.testing.assert_allclose(ncnn_call(content, [image.numpy()], 1)()[0], network(image)[0], rtol=1e-4, atol=1e-5)
    for attempt in (lambda x: Ncnn().write(network, x, {}), Ncnn().runner(content, network, 1)):
        with pytest.raises(ExportError, match="ncnn takes one input at once; got 2: give a batch of 1"):
            attempt(torch.randn(2, 1, 8, 8))


class Pair(nn.Module):
    """Two images, told apart."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Conv2d(1, 8, 3), nn.Conv2d(2, 8, 3)

    def forward(self, left, right):
        return self.left(left).relu() - self.right(right).mean((2, 3), keepdim=True)


def test_ncnn_takes_inputs_by_name_in_their_order_and_no_integers():
    inputs = {"right": torch.randn(1, 2, 6, 6), "left": torch.randn(1, 1, 8, 8)}
    check_same(Ncnn(), Pair().eval(), inputs)
    with pytest.raises(ExportError, match=r"take inputs of real numbers; got torch.int64: take another --format"):
        Ncnn().write(TinyNetwork().eval(), torch.zeros(1, 1, 8, 8).long(), {})


class LaterFirst(nn.Module):
    """Returns what is computed last as the first output."""

    def __init__(self):
        super().__init__()
        self.features, self.head = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        features = self.features(x).relu()
        return self.head(features), features


@pytest.mark.parametrize("format", [Ncnn(), Mnn()])
def test_outputs_come_in_the_networks_order(format):
    pytest.importorskip("MNN")
    network, image = LaterFirst().eval(), torch.randn(1, 1, 8, 8)
    found = format.runner(format.write(network, image, {}, opened="nothing"), network, 1)(image)
    with torch.no_grad():
        torch.testing.assert_close(list(found), list(network(image)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("message", ["the file: it has a layer", "the file: its converter may have left layers out"])
def test_a_file_that_an_engine_refuses_is_no_traceback(message, monkeypatch):
    format = Ncnn() if "has a layer" in message else Mnn()
    pytest.importorskip("MNN")

    def refuse(content, threads):
        raise ValueError(f"it refuses {message}")

    monkeypatch.setattr(sys.modules[type(format).__module__], f"{type(format).__name__}File", refuse)
    with pytest.raises(ExportError, match=f"it refuses {message}.*TinyNetwork: take another --format"):
        format.runner(b"", TinyNetwork(), 1)


def test_mnn_refuses_a_file_without_layers():
    pytest.importorskip("MNN")
    network = nn.Sequential(nn.Conv3d(1, 4, 3), nn.ReLU()).eval()
    content = Mnn().write(network, torch.randn(1, 1, 6, 6, 6), {}, opened="nothing")
    with pytest.raises(ExportError, match="its converter may have left layers out, of Sequential"):
        Mnn().runner(content, network, 1)


class Assigning(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)

    def forward(self, x):
        x = self.conv(x)
        x[:, 0] = 0
        return x


def test_mnn_takes_no_assignments_to_parts():
    pytest.importorskip("MNN")
    with pytest.raises(ExportError, match=r"MNN computes assignments to parts of a tensor .* as Assigning uses them"):
        Mnn().write(Assigning().eval(), torch.randn(1, 1, 8, 8), {}, opened="nothing")


def test_ncnn_reads_no_other_zip():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as parts:
        parts.writestr("network.ncnn.param", "7767517\n1 1\nNoLayer a 0 1 out0\n")
        parts.writestr("network.ncnn.bin", b"")
    with pytest.raises(ValueError, match="ncnn refuses the file"):
        ncnn_call(archive.getvalue(), [np.zeros((1, 1, 8, 8))], 1)


@pytest.mark.parametrize("name", [pytest.param("Gate", marks=pytest.mark.slow), "Halves"])
def test_mnn_holds_what_code_does_with_channels_for_any_batch(name):
    pytest.importorskip("MNN")
    model, space, x = tricky_network(name)
    network = build(model.float(), space, space.narrowest).eval()
    content = Mnn().write(network, x.float()[:2], {})
    run = Mnn().runner(content, network, 1)
    for images in (x.float()[:1], torch.cat([x.float()] * 3)):
        with torch.no_grad():
            torch.testing.assert_close(run(images), network(images), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_file_of_mnn_is_the_same_each_time_and_takes_inputs_by_name():
    pytest.importorskip("MNN")
    network = Pair().eval()
    inputs = {"right": torch.randn(1, 2, 6, 6), "left": torch.randn(1, 1, 8, 8)}
    content = Mnn().write(network, inputs, {}, opened="nothing")
    assert Mnn().write(network, inputs, {}, opened="nothing") == content
    with torch.no_grad():
        expected = network(**inputs)
        torch.testing.assert_close(Mnn().runner(content, network, 1)(inputs), expected, rtol=1e-4, atol=1e-5)
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    for given in (arrays, list(arrays.values())):  # in the order of the file
        (found,) = mnn_call(content, given, 1)()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


class Reductions(nn.Module):
    """Along one dimension, of the operators that MNN's converter takes for reductions of all."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)

    def forward(self, x):
        x = self.conv(x)
        return nn.functional.normalize(x, dim=1) * x.logsumexp(2, keepdim=True) + x.norm(p=1, dim=3, keepdim=True)


def test_mnn_reduces_along_the_dimensions_that_are_given():
    pytest.importorskip("MNN")
    check_same(Mnn(), Reductions().eval(), torch.randn(1, 1, 8, 8))


def test_mnn_names_what_it_lacks_and_refuses_other_inputs():
    pytest.importorskip("MNN")
    image = torch.randn(2, 1, 8, 8)
    with pytest.raises(ExportError, match=r"MNN has no form for Mish as Sequential uses it: take another --format"):
        Mnn().write(nn.Sequential(nn.Conv2d(1, 8, 3), nn.Mish()).eval(), image, {})
    network = nn.Conv2d(1, 8, 3).eval()
    run = Mnn().runner(Mnn().write(network, image, {}), network, 1)
    with pytest.raises(ValueError, match="MNN refuses the inputs"):
        run(torch.randn(1, 2, 8, 8))


@pytest.mark.slow
@pytest.mark.parametrize(("does", "said"), [("raise SystemExit(3)", "3 .*no output"), ("print('odd')", "0 .*odd")])
def test_a_converter_of_mnn_that_fails_says_so(does, said, monkeypatch):
    pytest.importorskip("MNN")
    monkeypatch.setattr("bcnet.phone.mnn._CONVERT", does)
    with pytest.raises(ExportError, match=rf"MNN's converter ends with code {said}.*take another --format"):
        Mnn().write(nn.Conv2d(1, 8, 3).eval(), torch.randn(2, 1, 8, 8), {})


class SpatialAttention(nn.Module):
    """Mean and largest value over channels, which pnnx takes wrongly from ONNX and rightly from TorchScript."""

    def __init__(self):
        super().__init__()
        self.conv, self.gate = nn.Conv2d(1, 8, 3), nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x):
        x = self.conv(x)
        return x * self.gate(torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)).sigmoid()


def test_ncnn_takes_the_graph_that_gives_the_networks_outputs():
    check_same(Ncnn(), SpatialAttention().eval(), torch.randn(1, 1, 8, 8))


@pytest.mark.slow
def test_ncnn_takes_networks_of_one_dimension():
    network = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(8, 4, 3)).eval()
    check_same(Ncnn(), network, torch.randn(1, 1, 40))


@pytest.mark.slow
def test_a_layer_that_ncnn_lacks_is_named():
    with pytest.raises(ExportError, match=r"ncnn has no form for F.softsign as Sequential uses it: take another"):
        Ncnn().write(nn.Sequential(nn.Conv2d(1, 8, 3), nn.Softsign()).eval(), torch.randn(1, 1, 8, 8), {})


def test_a_file_that_computes_something_else_is_refused():
    around = nn.Conv2d(1, 8, 3, padding=1, padding_mode="circular").eval()  # pnnx pads with zeros
    with pytest.raises(ExportError, match=r"those of Conv2d are off by .*take another --format"):
        Ncnn().write(around, torch.randn(1, 1, 8, 8) + 1, {})


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("touch network.ncnn.param network.ncnn.bin; echo no room >&2; exit 3", "3 .*no room"),
        ("true", "0 .*no output"),
    ],
)
def test_a_converter_that_fails_or_writes_nothing_says_so(does, said, tmp_path, monkeypatch):
    (tmp_path / "pnnx").write_text(f"#!/bin/sh\n{does}\n")
    (tmp_path / "pnnx").chmod(0o755)
    monkeypatch.setattr("pnnx.EXEC_PATH", str(tmp_path / "pnnx"))
    with pytest.raises(ExportError, match=rf"pnnx ends with code {said}.*take another --format"):
        Ncnn().write(TinyNetwork().eval(), torch.randn(1, 1, 8, 8), {})


@pytest.mark.parametrize(
    ("engine", "module", "extra"),
    [("ncnn", "pnnx", "ncnn"), ("ncnn", "ncnn", "ncnn"), ("executorch", "executorch", "executorch")],
)
def test_an_engine_that_is_not_installed_names_its_extra(engine, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    for name in [name for name in sys.modules if name.startswith(f"{module}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ExportError, match=rf"importing {module}.* failed with .*pip install 'bcnet\[{extra}\]'"):
        _ = engine_of(engine).version
    assert not engine_of(engine).is_installed
    with pytest.raises(ExportError, match=rf"pip install 'bcnet\[{extra}\]'"):
        FORMATS[engine].write(TinyNetwork().eval(), torch.randn(1, 1, 8, 8), {})


@pytest.mark.slow
def test_int8_files_of_executorch_need_samples():
    with pytest.raises(ExportError, match=r"an int8 file must be quantised by samples; got none"):
        ExecuTorchInt8().write(TinyNetwork().eval(), torch.randn(1, 1, 8, 8), {})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_search(tmp_path_factory.mktemp("runs") / "whole", method=bcnet.Uniform()).run_dir


@pytest.mark.slow
def test_a_run_is_exported_for_ncnn_with_its_normalisation(run):
    done = bcnet.export_run(run, TinyNetwork, format="ncnn", with_normalisation=True)
    assert (done.path.name, done.batches) == ("network_with_normalisation.ncnn.zip", (1,))
    images = torch.randint(256, (1, 1, 8, 8), dtype=torch.uint8)
    with torch.no_grad():
        expected = bcnet.load(run, TinyNetwork)(tiny_data().normaliser(images))
    found = ncnn_call(done.path, [(images / 255).numpy()], 1)()
    np.testing.assert_allclose(found[0], expected[0].numpy(), atol=1e-4)
    assert "unzip network_with_normalisation.ncnn.zip first" in (run / "model_card.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("format", ["executorch", "executorch:int8"])
def test_a_run_is_exported_for_executorch(run, format):
    done = bcnet.export_run(run, TinyNetwork, format=format, data=tiny_data() if "int8" in format else None)
    assert done.path.suffix == ".pte"
    assert done.difference <= done.tolerance
    assert (done.tests is None) == (format == "executorch")
    if done.tests is not None:
        assert abs(done.tests["file"] - done.tests["PyTorch"]) <= 200 / 30 + 1e-6  # two of thirty images
    method = __import__("executorch.runtime").runtime.Runtime.get().load_program(done.path).load_method("forward")
    data = tiny_data()
    image = data.normaliser(data.test.pixels[:1])
    with torch.no_grad():
        expected = bcnet.load(run, TinyNetwork)(image)
    off = 0.3 if "int8" in format else 1e-4
    torch.testing.assert_close(method.execute([image])[0], expected, rtol=0, atol=off * float(expected.abs().max()))


@pytest.mark.slow
def test_networks_are_timed_where_they_run(run):
    assert {"torch", "ncnn", "executorch"} <= set(installed_backends())
    for backend in ("torch", "ncnn"):
        measured = bcnet.measure_latency(run, TinyNetwork, backend=backend, rounds=5, warmup=1)
        assert measured.backend == backend
        assert measured.milliseconds["searched"].median > 0
    page = bcnet.write_report(run).read_text()
    assert "Where it runs" in page
    assert page.index("Where it runs") < page.index("ncnn on")
