import dataclasses
import sys
import textwrap

import numpy as np
import pytest
import torch
from tiny_job import TinyNetwork, tiny_data, tiny_search
from torch import nn

import bcnet
from bcnet.costs import Latency
from bcnet.errors import ExportError
from bcnet.export import FORMATS
from bcnet.export.quantized import exceeded_limits
from bcnet.latency.engines import engine_of
from bcnet.models import create
from bcnet.run.finished import FinishedRun
from bcnet.space import WidthSpace
from bcnet.supernet import build
from bcnet.tflite import Converter, converter, read_graph
from bcnet.tflite import graph as reading
from bcnet.tflite.litert import FileNetwork, LiteRtFile

slow = pytest.mark.slow
installed = pytest.mark.usefixtures("litert")


class Separable(nn.Module):
    """Depthwise-separable layers with a shortcut and strides, which are padded on their own."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        self.wide = nn.Sequential(nn.Conv2d(16, 48, 1), nn.ReLU6(), nn.Conv2d(48, 48, 3, 1, 1, groups=48), nn.ReLU6())
        self.narrow = nn.Conv2d(48, 16, 1)
        self.last = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.narrow(self.wide(x))
        return self.head(self.last(x).mean((2, 3)))


class Joined(nn.Module):
    """Branches that are concatenated, pooled and flattened."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(1, 12, 5, padding=2)
        self.head = nn.Sequential(nn.Linear(28 * 16, 20), nn.ReLU(), nn.Linear(20, 4))

    def forward(self, x):
        joined = torch.cat([self.one(x).relu(), self.other(x).relu()], 1)
        return self.head(nn.functional.max_pool2d(joined, 2).flatten(1))


NETWORKS = {
    "separable": (Separable, (2, 3, 24, 24)),
    "joined": (Joined, (2, 1, 8, 8)),
    "resnet20": (lambda: create("resnet20", 10).build(), (2, 3, 16, 16)),
}


@slow
@installed
@pytest.mark.parametrize("name", NETWORKS)
def test_the_arena_is_predicted_to_the_byte(name):
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    network, example = make().eval(), torch.randn(shape)
    graph = read_graph(network, example)
    space = WidthSpace.trace(network, example, multiple_of=1)
    rng = np.random.default_rng(0)
    with Converter() as worker:
        for _ in range(2):
            widths = tuple(int(rng.integers(max(2, g.max_width // 6), g.max_width + 1)) for g in space.groups)
            samples = torch.randn(4, 1, *shape[1:])
            narrow = reading.disturb(build(network, space, widths).eval())
            told = worker.describe(worker.convert(narrow, example[:1], samples))
            assert graph.arena(np.array([widths]))[0] == told["arena"]["total"], widths
            assert 0 <= graph.file(np.array([widths]))[0] - told["file"] <= 4 * len(told["constants"]), widths


@slow
@installed
def test_files_give_what_the_network_gives():
    torch.manual_seed(0)
    network, images = Separable().eval(), torch.rand(6, 3, 24, 24)
    samples = torch.rand(64, 1, 3, 24, 24)
    with Converter() as worker:
        exact = LiteRtFile(worker.convert(network, images[:1]))
        content = worker.convert(network, images[:1], samples)
        quantised = LiteRtFile(content)
        with torch.no_grad():
            expected = network(images)
        assert torch.allclose(FileNetwork(exact)(images), expected, atol=1e-5)
        found = FileNetwork(quantised)(images)
        assert 0 < (found - expected).norm() / expected.norm() < 0.1
        (stored,) = quantised.to_stored(images)
        assert stored.dtype == np.int8
        micro = torch.from_numpy(quantised.to_real(worker.run_micro(content, [stored[:, None]]))).flatten(1)
        assert torch.allclose(micro, found, atol=4 * float(found.abs().max()) / 128)


class Resized(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.conv, self.size = nn.Conv2d(1, 4, 3, padding=1), size

    def forward(self, x):
        return nn.functional.interpolate(self.conv(x), size=self.size)


@slow
@installed
def test_nearest_resizing_takes_the_pixels_of_pytorch():
    image = torch.randn(1, 1, 8, 8)
    with Converter() as worker, torch.no_grad():
        # Half, one and a half times, and a whole factor, which keeps TFLite's own operator.
        for size, own in (((4, 4), False), ((12, 12), False), ((16, 16), True)):
            network = Resized(size).eval()
            content = worker.convert(network, image)
            torch.testing.assert_close(LiteRtFile(content)(image), network(image), rtol=1e-4, atol=1e-5)
            operators = LiteRtFile(content).interpreter._get_ops_details()
            assert any(op["op_name"] == "RESIZE_NEAREST_NEIGHBOR" for op in operators) == own


@slow
@installed
def test_int8_constants_are_inside_the_file():
    network = nn.Sequential(nn.Conv2d(3, 256, 3), nn.ReLU(), nn.Conv2d(256, 160, 3)).eval()  # 376,000 weights
    image = torch.rand(1, 3, 8, 8)
    with Converter() as worker:
        content = worker.convert(network, image, torch.rand(4, 1, 3, 8, 8))
        assert worker.describe(content)["arena"]["total"] < 40_000, "else weights are planned as tensors"
        file = LiteRtFile(content)
        (stored,) = file.to_stored(image)
        micro = file.to_real(worker.run_micro(content, [stored[None]]))
        expected = network(image).detach().numpy()
    assert np.linalg.norm(micro.ravel() - expected.ravel()) < 0.1 * np.linalg.norm(expected)


@slow
@installed
def test_a_file_names_nothing_but_what_goes_in_and_out():
    network, image = Separable().eval(), torch.rand(1, 3, 24, 24)
    with Converter() as worker:
        for samples in (None, torch.rand(4, 1, 3, 24, 24)):
            content = worker.convert(network, image, samples)
            assert b"Separable" not in content
            assert b"torch.nn" not in content
            (described,) = LiteRtFile(content).interpreter.get_input_details()
            assert described["name"]


class Named(nn.Module):
    """Inputs by name, of one shape, and integers."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.words = nn.Linear(6, 4), nn.Linear(6, 4), nn.Embedding(5, 4)

    def forward(self, second, first, again):
        return self.words(again) - 2 * self.two(first) + self.one(second)


@slow
@installed
def test_inputs_go_where_their_names_say():
    torch.manual_seed(0)
    network = Named().eval()
    inputs = {"second": torch.rand(3, 6), "first": torch.rand(3, 6), "again": torch.tensor([4, 0, 2])}
    with Converter() as worker, torch.no_grad():
        for given, order in ((inputs, dict(reversed(inputs.items()))), (tuple(inputs.values()),) * 2):
            found = LiteRtFile(worker.convert(network, given))(order)
            torch.testing.assert_close(found, network(**inputs), rtol=1e-4, atol=1e-5)


@slow
@installed
def test_what_is_timed_is_the_file_that_is_exported():
    network, images = TinyNetwork().eval(), torch.rand(1, 1, 8, 8)
    engine = engine_of("litert")
    assert engine.write(network, images) == FORMATS["litert"].write(network, images, {}, opened="nothing")
    engine.prepare(network, images, 1)()
    assert Latency("litert").description == "latency:litert"


@slow
@installed
def test_a_run_is_exported_in_fp32_and_int8(tmp_path):
    tiny_search(tmp_path, method=bcnet.Uniform())
    exact = bcnet.export_run(tmp_path, TinyNetwork, format="litert")
    assert exact.difference < 1e-4
    assert exact.batches == (1,)
    with pytest.raises(ExportError, match="needs the run's data, which it does not find"):
        bcnet.export_run(tmp_path, TinyNetwork, format="litert:int8")
    export = bcnet.export_run(tmp_path, TinyNetwork, format="litert:int8", data=tiny_data())
    assert export.path.name == "network_int8.tflite"
    assert abs(export.tests["file"] - export.tests["PyTorch"]) < 15
    assert export.size < exact.size
    assert export.arena > 64 * 8
    card = (tmp_path / "model_card.md").read_text()
    assert f"tflite-micro takes {export.arena:,} bytes" in card
    assert "scale, zero = into" in card


class Sorted(nn.Module):
    """An operator that the converter has no form for."""

    def forward(self, x):
        return torch.fft.fft(x).angle()


@slow
@installed
def test_what_cannot_be_converted_is_refused_in_one_message():
    with Converter() as worker:
        with pytest.raises(ExportError, match=r"TFLite has no form for Sorted: .*take another --format"):
            worker.convert(Sorted().eval(), torch.rand(1, 4))
        assert worker.convert(nn.Linear(4, 2).eval(), torch.rand(1, 4)), "the process goes on"


def stand_in(tmp_path, monkeypatch, script):
    """A converter's Python that runs `script` instead."""
    file = tmp_path / "python"
    file.write_text(f"#!{sys.executable}\n{textwrap.dedent(script)}")
    file.chmod(0o755)
    monkeypatch.setenv(converter.PYTHON, str(file))


def test_a_converter_that_dies_is_told_with_its_last_words(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, "import sys; sys.stdin.readline(); sys.exit('killed: out of memory')")
    with (
        Converter() as worker,
        pytest.raises(ExportError, match=r"ended while it worked on Linear \(killed: out of mem"),
    ):
        worker.convert(nn.Linear(4, 2).eval(), torch.rand(1, 4))


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    reply = '{"error": "ModuleNotFoundError: No module named \'litert_torch\'"}'
    stand_in(tmp_path, monkeypatch, f"import sys\nfor line in sys.stdin: print({reply!r}, flush=True)")
    with Converter() as worker, pytest.raises(ExportError, match=r"No module named 'litert_torch'.*bcnet\[litert\]"):
        worker.convert(nn.Linear(4, 2).eval(), torch.rand(1, 4))


def test_int8_takes_one_input_at_once(tmp_path):
    with pytest.raises(ExportError, match="an int8 file takes one input at once; got batch 4"):
        bcnet.export_run(tmp_path, format="litert:int8", batch=4)


def test_limits_that_a_file_does_not_keep_are_told(tmp_path):
    tiny_search(tmp_path, method=bcnet.Uniform())
    finished = FinishedRun.read(tmp_path, TinyNetwork)
    assert exceeded_limits(finished, 10**6, 10**6) == ()
    limits = {"arena": 1024, "flash": 0.5}
    settings = finished.settings.model_copy(update={"limits": limits})
    finished.result.networks["original"].others.update(arena=4000, flash=8000)
    limited = dataclasses.replace(finished, settings=settings)
    assert exceeded_limits(limited, 4000, 1024) == ()
    assert exceeded_limits(limited, 4001, None) == ("flash: 4,001 bytes, where the run was limited to 4,000",)
    assert [text.partition(":")[0] for text in exceeded_limits(limited, 4001, 1025)] == ["arena", "flash"]


def test_no_int8_file_is_written_without_samples():
    with pytest.raises(ExportError, match="quantised by samples; got none"):
        FORMATS["litert:int8"].write(TinyNetwork(), torch.rand(1, 1, 8, 8), {}, opened="nothing")
