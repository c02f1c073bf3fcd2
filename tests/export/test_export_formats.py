import json
import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from tiny_job import TinyNetwork, tiny_data, tiny_search
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from typer.testing import CliRunner

import bcnet
from bcnet.cli.app import app
from bcnet.data.decoding import bytes_of, fit
from bcnet.errors import ExportError, ModelError, RunError
from bcnet.export import FORMATS, format_of
from bcnet.export.job import _difference
from bcnet.files.documents import read_document, write_document
from bcnet.formats import Onnx, export_graph
from bcnet.run.finished import FinishedRun


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return tiny_search(tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture(scope="module")
def as_onnx(finished):
    return bcnet.export_run(finished.run_dir, TinyNetwork, format="onnx", with_normalisation=True)


def pixels(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(256, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)


def test_onnx_gives_the_logits_of_the_network_for_images_in_0_to_1(finished, as_onnx):
    session = onnxruntime.InferenceSession(as_onnx.path, providers=["CPUExecutionProvider"])
    for count in (1, 3, 7):
        images = pixels(count)
        (logits,) = session.run(["logits"], {"images": (images / 255).numpy()})
        with torch.no_grad():
            expected = finished.network(tiny_data().normaliser(images))
        np.testing.assert_allclose(logits, expected.numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "pt2"])
def test_a_file_takes_bytes_of_any_height_and_width(finished, tmp_path, format):
    done = bcnet.export_run(
        finished.run_dir, TinyNetwork, format=format, takes_bytes=True, open_size=True, out=tmp_path / f"n.{format}"
    )
    assert (done.takes, done.open_size, done.batches) == ("bytes", True, (1, 2, 5))
    images = torch.randint(256, (3, 1, 12, 20), dtype=torch.uint8)
    with torch.no_grad():
        expected = finished.network(tiny_data().normaliser(images))
    if format == "onnx":
        session = onnxruntime.InferenceSession(done.path, providers=["CPUExecutionProvider"])
        assert session.get_inputs()[0].shape == ["batch", 1, "height", "width"]
        found = torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0])
    else:
        found = torch.export.load(done.path).module()(images)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    card = (finished.run_dir / "model_card.md").read_text()
    assert f"| `n.{format}` | bytes of any height and width |" in card


@pytest.mark.slow
@pytest.mark.usefixtures("litert")
@pytest.mark.parametrize("format", ["litert", "executorch"])
def test_a_phones_file_takes_bytes(finished, tmp_path, format):
    done = bcnet.export_run(
        finished.run_dir, TinyNetwork, format=format, takes_bytes=True, out=tmp_path / f"n.{FORMATS[format].suffix}"
    )
    assert (done.takes, done.batches) == ("bytes", (1,))
    images = pixels(1)
    found = FORMATS[format].runner(done.path.read_bytes(), finished.network, 1)(images)
    with torch.no_grad():
        torch.testing.assert_close(found, finished.network(tiny_data().normaliser(images)), atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def of_files(tmp_path_factory):
    """A run on stripes in image files, of several sizes, resized to 8x8."""
    folder = tmp_path_factory.mktemp("files")
    data = tiny_data()
    for part, images in (("train", data.train), ("test", data.test)):
        for number, (pixels, label) in enumerate(zip(images.pixels, images.labels, strict=True)):
            place = folder / part / f"class{label}"
            place.mkdir(parents=True, exist_ok=True)
            size = (20, 17) if number % 2 else (12, 31)
            Image.fromarray(pixels[0].numpy()).resize(size).save(place / f"{number}.png")
    return tiny_search(
        folder / "run", data=f"imagefolder:{folder}", options={"image_size": 8, "threads": 1}, method=bcnet.Uniform()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("height", "width"), [(17, 20), (31, 12), (8, 8)])
@pytest.mark.parametrize("format", ["onnx", "pt2"])
def test_a_file_resizes_bytes_as_the_runs_images_were(of_files, tmp_path, format, height, width):
    done = bcnet.export_run(
        of_files.run_dir, TinyNetwork, format=format, from_size=(height, width), out=tmp_path / f"n.{format}"
    )
    assert (done.takes, done.from_size) == ("bytes", (height, width))
    smooth = torch.nn.functional.interpolate(255 * torch.rand(3, 1, 4, 4), (height, width), mode="bilinear").byte()
    resized = torch.stack([bytes_of(fit(Image.fromarray(image[0].numpy()), 8)) for image in smooth])
    facts = FinishedRun.read(of_files.run_dir, TinyNetwork).input
    with torch.no_grad():
        expected = facts.normalise(of_files.network, of_bytes=True)(resized)
    if format == "onnx":
        session = onnxruntime.InferenceSession(done.path, providers=["CPUExecutionProvider"])
        assert session.get_inputs()[0].shape == ["batch", 1, height, width]
        found = torch.from_numpy(session.run(["logits"], {"images": smooth.numpy()})[0])
    else:
        found = torch.export.load(done.path).module()(smooth)
    # PIL rounds to bytes, twice.
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)
    card = (of_files.run_dir / "model_card.md").read_text()
    assert f"| `n.{format}` | bytes of {height}x{width} pixels (height x width), resized inside |" in card


@pytest.mark.slow
@pytest.mark.parametrize("opset", [14, 17, 20])
def test_onnx_of_another_version_gives_the_same(finished, tmp_path, opset):
    done = bcnet.export_run(finished.run_dir, TinyNetwork, opset=opset, out=tmp_path / "network.onnx")
    model = onnx.load(done.path)
    assert [one.version for one in model.opset_import if not one.domain] == [opset]
    onnx.checker.check_model(model)


@pytest.mark.slow
def test_versions_of_onnx_that_cannot_be_had_are_refused(finished, tmp_path):
    file = tmp_path / "network.onnx"
    newest = onnx.defs.onnx_opset_version()
    for opset, message in (
        (7, r"takes the network from opset 18 to no 7: .*take a later one"),
        (99, f", {newest}; got"),
    ):
        with pytest.raises(ExportError, match=message):
            bcnet.export_run(finished.run_dir, TinyNetwork, opset=opset, out=file)
    assert not file.exists()


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.head = nn.Conv2d(1, 8, 3), nn.Linear(8 * 36, 3)

    def forward(self, x):
        return self.head(torch.relu(self.a(x)).flatten(1))


def test_a_network_of_one_size_says_so(tmp_path):
    run = tiny_search(tmp_path, model=Flat, method=bcnet.Uniform()).run_dir
    message = r"it fails on \(2, 1, 16, 16\) with RuntimeError: .*leave --open-size out"
    for format in ("onnx", "pt2"):
        with pytest.raises(ExportError, match=message):
            bcnet.export_run(run, Flat, format=format, open_size=True)
    assert not (run / "export").exists()


def test_onnx_says_what_it_is_and_nothing_of_the_users_files(as_onnx):
    model = onnx.load(as_onnx.path)
    onnx.checker.check_model(model)
    notes = {entry.key: entry.value for entry in model.metadata_props}
    assert notes["model"] == "TinyNetwork from a factory"
    assert json.loads(notes["input"])["shape"] == [1, 8, 8]
    assert [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [
        "batch",
        1,
        8,
        8,
    ]
    assert b".py" not in as_onnx.path.read_bytes()


def test_an_export_states_tolerance_sizes_and_times(finished, as_onnx):
    assert as_onnx.path == finished.run_dir / "export" / "network_with_normalisation.onnx"
    assert 0 <= as_onnx.difference <= as_onnx.tolerance == 1e-4
    assert as_onnx.size == as_onnx.path.stat().st_size < as_onnx.original_size
    assert set(as_onnx.milliseconds) == {"PyTorch", "onnxruntime", "onnxruntime, original network"}
    assert all(0 < t.low <= t.median <= t.high and t.count == 50 for t in as_onnx.milliseconds.values())
    exports = read_document(finished.run_dir / "exports.json")["exports"]
    (entry,) = (one for one in exports if one["takes"] == "images in [0, 1]")
    assert entry["path"] == "export/network_with_normalisation.onnx"
    assert entry["milliseconds"]["onnxruntime"]["median"] == as_onnx.milliseconds["onnxruntime"].median


class Unpooled(nn.Module):
    """A pooling whose places are used again, of which the exporter makes an attribute without content."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 2, 1)

    def forward(self, x):
        x, places = F.max_pool2d(self.first(x), 2, return_indices=True)
        return self.last(F.max_unpool2d(x, places, 2))


def test_what_the_exporter_logs_of_itself_stays_out_of_the_terminal(caplog):
    image = torch.randn(2, 1, 8, 8)
    Onnx().write(Unpooled().eval(), image, {})
    assert not [record for record in caplog.records if record.name.startswith("onnx_ir")]
    assert logging.getLogger("onnx_ir").level == logging.NOTSET


def test_pt2_gives_the_same_logits(finished, tmp_path):
    done = bcnet.export_run(finished.run_dir, TinyNetwork, format="pt2", out=tmp_path / "net.pt2")
    assert done.path == tmp_path / "net.pt2"
    network = torch.export.load(done.path).module()
    for count in (1, 4):
        images = torch.randn(count, 1, 8, 8)
        with torch.no_grad():
            torch.testing.assert_close(network(images), finished.network(images), atol=1e-5, rtol=0)


def test_safetensors_hold_the_architecture(finished, tmp_path):
    file = bcnet.export_run(finished.run_dir, TinyNetwork, format="safetensors", out=tmp_path / "n.safetensors").path
    images = pixels(4)
    plain = bcnet.load(file, TinyNetwork)
    assert type(plain) is TinyNetwork
    normalised = bcnet.load(file, TinyNetwork, with_normalisation=True)
    with torch.no_grad():
        expected = finished.network(tiny_data().normaliser(images))
        torch.testing.assert_close(plain(tiny_data().normaliser(images)), expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(normalised(images / 255), expected, atol=1e-5, rtol=0)
    with pytest.raises(ModelError, match="which only your code can make"):
        bcnet.load(file)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RunError, match="a file to load must be one that"):
        bcnet.load(file, TinyNetwork)


def test_a_run_loads_as_its_three_networks(finished):
    loaded = bcnet.load(finished.run_dir, TinyNetwork)
    assert not loaded.training
    for name, tensor in finished.network.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    run = bcnet.run.finished.FinishedRun.read(finished.run_dir, TinyNetwork())
    for which in ("original", "uniform", "searched"):
        params = sum(p.numel() for p in run.network(which).parameters())
        assert params == finished.result.networks[which].params
    assert run.space().cost(finished.widths).macs == finished.result.networks["searched"].macs
    assert run.input.class_names == ("0", "1", "2")


def test_an_object_is_loaded_with_the_code_that_made_it(finished):
    with pytest.raises(ModelError, match=r"which only your code can make: give the function that makes it, bcnet.load"):
        bcnet.load(finished.run_dir)
    with pytest.raises(ModelError, match="must be the one described"):
        bcnet.load(finished.run_dir, lambda: TinyNetwork(10))
    with pytest.raises(ModelError, match="of the space"):
        bcnet.run.finished.FinishedRun.read(finished.run_dir, lambda: TinyNetwork(10)).space()


@pytest.mark.parametrize("opened", [bcnet.load, bcnet.Run.open, bcnet.write_report, bcnet.export_run])
@pytest.mark.parametrize("given", [TinyNetwork, 3, None])
def test_a_run_is_given_by_its_path(opened, given):
    with pytest.raises(RunError, match=r"a run must be given by the path of its directory; got .*: write 'runs/half'"):
        opened(given)


def test_what_a_search_returned_stands_for_its_run(finished):
    assert bcnet.Run.open(finished).path == bcnet.Run.open(finished.run_dir).path
    images = torch.randn(2, 1, 8, 8)
    assert torch.equal(bcnet.load(finished, TinyNetwork)(images), bcnet.load(finished.run_dir, TinyNetwork)(images))


def test_only_a_finished_run_is_loaded(finished, tmp_path):
    with pytest.raises(RunError, match="is not a run directory"):
        bcnet.load(tmp_path)
    settings = read_document(finished.run_dir / "settings.json")
    write_document(tmp_path / "settings.json", settings)
    with pytest.raises(RunError, match="has no result yet"):
        bcnet.load(tmp_path, TinyNetwork)


def test_a_file_that_differs_is_not_kept(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(Onnx, "write", lambda self, network, example, notes, **options: b"")

    def shifted(self, content, network, threads):
        def run(x):
            logits = network(x).detach()
            return logits + 0.01 * logits.abs().max().clamp(min=1)

        return run

    monkeypatch.setattr(Onnx, "runner", shifted)
    message = r"give PyTorch's logits to 0.0001 of the largest; the difference is 0\.01:"
    with pytest.raises(ExportError, match=message):
        bcnet.export_run(finished.run_dir, TinyNetwork, format="onnx", out=tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"format": "tflite"},
            "a format must be one of onnx, pt2, safetensors, litert, litert:int8, ncnn, mnn, executorch, "
            "executorch:int8; got 'tflite'",
        ),
        ({"format": "safetensors", "with_normalisation": True}, "holds weights alone"),
        ({"format": "pt2", "batch": 0}, "a batch must be an int of at least 1, or left out for an open one; got 0"),
        ({"format": "safetensors", "batch": 1}, "holds weights alone, for batches of any size"),
        ({"format": "pt2", "threads": 0}, "threads must be an int of at least 1; got 0"),
        ({"format": "ncnn", "takes_bytes": True}, "--bytes is for the formats onnx, pt2, litert, executorch; got ncnn"),
        ({"format": "litert:int8", "takes_bytes": True}, "--bytes is for the formats .*; got litert:int8"),
        ({"format": "safetensors", "open_size": True}, "--open-size is for the formats onnx, pt2; got safetensors"),
        ({"open_size": True, "batch": 2}, "any batch too; got batch 2"),
        ({"from_size": (8, 8)}, "--from-size is for runs whose image files were resized"),
        ({"format": "ncnn", "from_size": (8, 8)}, "--from-size is for the formats onnx, pt2; got ncnn"),
        ({"from_size": (8, 8), "open_size": True}, "a file resizes images of one size; got --open-size with"),
        ({"format": "pt2", "opset": 18}, "version of ONNX's operators, from 7 on; got 18 for the format pt2"),
        ({"opset": True}, "from 7 on; got True for the format onnx"),
        ({"format": "pt2", "out": "."}, "--out must be a file; . is a folder"),
        ({"format": "pt2", "out": "nowhere/net.pt2"}, "there is no nowhere: make it"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(finished, options, message):
    with pytest.raises(ExportError, match=message):
        bcnet.export_run(finished.run_dir, TinyNetwork, **options)


def test_the_runs_own_files_are_safe(finished):
    weights = finished.run_dir / "final.safetensors"
    before = weights.read_bytes()
    with pytest.raises(ExportError, match="must leave the run's own files alone"):
        bcnet.export_run(finished.run_dir, TinyNetwork, format="safetensors", out=weights)
    assert weights.read_bytes() == before


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_names_the_extra(finished, monkeypatch, package):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ExportError, match=rf"importing {package} failed .* run `pip install 'bcnet\[onnx\]'`"):
        bcnet.export_run(finished.run_dir, TinyNetwork, format="onnx")


class OneBatchSize(TinyNetwork):
    def forward(self, x):
        return super().forward(x) if len(x) == 2 else super().forward(x[:2])


def test_code_that_depends_on_the_batch_size_is_refused():
    with pytest.raises(
        ExportError, match=r"OneBatchSize takes the batch size of its example for a constant; .* \(--batch 1\)"
    ):
        export_graph(OneBatchSize().eval(), torch.zeros(2, 1, 8, 8))
    assert export_graph(OneBatchSize().eval(), torch.zeros(1, 1, 8, 8), opened="nothing").module()


class CountsItsBatch(TinyNetwork):
    def forward(self, x):
        return super().forward(x).view(len(x), -1)


@pytest.mark.slow
def test_a_network_that_counts_its_batch_gets_a_file_for_one_input(tmp_path):
    run = tiny_search(tmp_path / "run", model=CountsItsBatch).run_dir
    done = bcnet.export_run(run, CountsItsBatch, format="onnx")
    assert done.batches == (1,)
    assert "CountsItsBatch takes the batch size of its example for a constant" in done.fixed_batch
    assert done.difference < 1e-5
    assert ", 1 at once |" in (run / "model_card.md").read_text()
    told = CliRunner().invoke(app, ["export", str(run), "--format", "onnx", "--model", f"{__name__}:CountsItsBatch"])
    assert "one input at once (CountsItsBatch takes the batch size" in told.output
    assert bcnet.export_run(run, CountsItsBatch, format="safetensors").batches != (1,)
    with pytest.raises(ExportError, match="with an open batch size"):
        bcnet.export_run(run, CountsItsBatch, format="onnx", open_size=True)


def test_a_file_that_onnx_runtime_does_not_run_is_told():
    with pytest.raises(ExportError, match=r"ONNX Runtime does not run the file of TinyNetwork .*take --format pt2"):
        Onnx().runner(b"no graph", TinyNetwork(), 1)


class Spectrum(TinyNetwork):
    """A product of complex numbers, which ONNX does not have."""

    def forward(self, x):
        waves = torch.fft.rfft2(x)
        return super().forward(torch.fft.irfft2(torch.einsum("bcxy,bcxy->bcxy", waves, waves), s=x.shape[-2:]))


def test_what_onnx_does_not_have_is_named_in_plain_letters():
    with pytest.raises(ExportError, match=r"ONNX has no form for aten\.einsum as Spectrum uses it") as refusal:
        FORMATS["onnx"].write(Spectrum().eval(), torch.rand(2, 1, 8, 8), {})
    assert "\x1b" not in str(refusal.value)
    assert "Next steps" not in str(refusal.value)


class Modulated(TinyNetwork):
    """A filter for each input, in as many groups as there are inputs, which ONNX needs to know."""

    def forward(self, x):
        scales = 1 + x.mean((2, 3))[:, :, None, None]  # (batch, 1, 1, 1)
        filters = torch.ones(1, 1, 3, 3) * scales
        mixed = F.conv2d(x.reshape(1, -1, *x.shape[2:]), filters, padding=1, groups=x.shape[0])
        return super().forward(mixed.reshape(x.shape))


def test_what_onnx_writes_for_one_input_only_takes_one(tmp_path):
    run = tiny_search(tmp_path, model=Modulated).run_dir
    done = bcnet.export_run(run, Modulated, format="onnx")
    assert done.batches == (1,)
    assert done.fixed_batch.startswith("ONNX does not take Modulated with any batch size")


class Scattered(TinyNetwork):
    """A spectrum that is written in parts, whose export fails at that line."""

    def forward(self, x):
        waves = torch.fft.rfft2(self.first(x))
        low = torch.zeros_like(waves)
        low[:, :, :4] = waves[:, :, :4]
        return super().forward(x + torch.fft.irfft2(low).mean((1, 2, 3), keepdim=True))


def test_a_refusal_names_the_innermost_reason_and_its_line():
    with pytest.raises(
        ExportError, match=r"refuses Scattered .*complex.*\(in File .*, line \d+\): take --format"
    ) as refusal:
        FORMATS["onnx"].write(Scattered().eval(), torch.rand(1, 1, 8, 8), {}, opened="nothing")
    assert "Next steps" not in str(refusal.value)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "pt2"])
def test_a_fixed_batch_is_all_that_a_file_takes(finished, tmp_path, format):
    done = bcnet.export_run(finished.run_dir, TinyNetwork, format=format, batch=3, out=tmp_path / "net")
    assert done.batches == (3,)
    runner = FORMATS[format].runner(done.path.read_bytes(), TinyNetwork(), 1)
    assert runner(torch.rand(3, 1, 8, 8)).shape == (3, 3)
    with pytest.raises(Exception, match=r"(?i)dim|shape|size"):
        runner(torch.rand(2, 1, 8, 8))


class Drawn(TinyNetwork):
    """Noise in eval mode."""

    def forward(self, x):
        return super().forward(x + 0.1 * torch.randn_like(x))


@pytest.mark.slow
def test_a_network_that_draws_random_numbers_is_compared_by_its_means(tmp_path):
    tiny_search(tmp_path / "run", model=Drawn, method=bcnet.Uniform())
    done = bcnet.export_run(tmp_path / "run", Drawn, format="onnx")
    assert done.difference <= done.tolerance
    run = FinishedRun.read(tmp_path / "run", Drawn)
    shifted = run.network("searched")
    images = torch.rand(1, 1, 8, 8)
    with pytest.raises(ExportError, match="give PyTorch's logits"):
        _difference(run.network("searched"), lambda x: shifted(x).detach() + 0.5, FORMATS["onnx"], [images])


def test_a_file_is_of_the_format_that_its_suffix_names():
    suffixes = {name: kind.suffix for name, kind in FORMATS.items()}
    assert suffixes == {
        **{name: name for name in ("onnx", "pt2", "safetensors")},
        "litert": "tflite",
        "litert:int8": "tflite",
        "ncnn": "ncnn.zip",
        "mnn": "mnn",
        "executorch": "pte",
        "executorch:int8": "pte",
    }
    expected = [name.removesuffix(":int8") for name in suffixes]  # fp32 comes first
    assert [format_of(Path(f"net.{suffix}")) for suffix in suffixes.values()] == expected
    assert format_of(None) == format_of(Path("net")) == format_of(Path("net.bin")) == "onnx"


class Logarithm(nn.Module):
    """Brightness as a logarithm, which is not defined for dark images."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(1, 8, 3), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.first(torch.log(x - 0.5))).mean((2, 3)))


@pytest.mark.slow
def test_outputs_that_are_not_finite_are_refused(finished, tmp_path):
    def bright(count):
        return DataLoader(TensorDataset(0.6 + 0.4 * torch.rand(count, 1, 8, 8), torch.arange(count) % 3), 8)

    tiny_search(
        tmp_path / "log",
        model=Logarithm,
        data=(bright(48), bright(24), bright(16)),
        method=bcnet.Trainings(effort="small"),
    )
    for format in ("onnx", "pt2", "safetensors"):
        with pytest.raises(ExportError, match=r"PyTorch must give finite outputs; got NaN or infinity .* nothing was"):
            bcnet.export_run(tmp_path / "log", Logarithm, format=format)
    assert not (tmp_path / "log" / "export").exists()
    run = FinishedRun.read(finished.run_dir, TinyNetwork)
    for value in (float("nan"), float("inf")):
        with pytest.raises(ExportError, match=r"onnxruntime must give finite outputs; got NaN or infinity"):
            _difference(
                run.network("searched"),
                lambda x, v=value: torch.full((len(x), 3), v),
                FORMATS["onnx"],
                [torch.rand(count, 1, 8, 8) for count in (1, 2)],
            )


class Both(NamedTuple):
    logits: torch.Tensor
    features: torch.Tensor


class ReturnsBoth(TinyNetwork):
    def forward(self, x):
        return Both(super().forward(x), x)


def test_pt2_names_outputs_that_an_archive_cannot_hold():
    with pytest.raises(ExportError, match=r"tuples, lists and dicts of them; got others for ReturnsBoth .*plain tuple"):
        FORMATS["pt2"].write(ReturnsBoth().eval(), torch.randn(2, 1, 8, 8), {})


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.gru = nn.Conv2d(1, 6, 3), nn.GRU(6, 4, batch_first=True)

    def forward(self, x):
        return self.gru(self.conv(x).flatten(2).transpose(1, 2))[0][:, -1]


def test_a_recurrent_network_is_exported_without_a_warning():
    network, images = Recurrent().eval(), torch.randn(2, 1, 8, 8)
    run = FORMATS["onnx"].runner(FORMATS["onnx"].write(network, images, {}), network, 1)
    torch.testing.assert_close(run(images), network(images).detach(), rtol=1e-4, atol=1e-5)
