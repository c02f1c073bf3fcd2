"""Calibration on another device: the bundle's script where there is no torch, its times and those of others read."""

import csv
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_job import TinyNetwork, tiny_search
from typer.testing import CliRunner

import bcnet
from bcnet.cli.app import app
from bcnet.costs import Latency, read_latency
from bcnet.errors import BudgetError, ExportError
from bcnet.latency import draws, latency_from, write_bundle
from bcnet.latency.engines import OnnxRuntime
from bcnet.machine import measure
from bcnet.models import create
from bcnet.space import Budget, WidthSpace
from bcnet.supernet import build

WITHOUT_TORCH = ("numpy", "numpy.libs", "onnxruntime", "flatbuffers", "google", "packaging")
"""What a device has: the engine and what it imports."""


@pytest.fixture(scope="module")
def subject():
    model, images = create("resnet_digits").build(), torch.rand(2, 1, 8, 8)
    return model, images, WidthSpace.trace(model, images)


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def device(tmp_path):
    """Runs Python where numpy and ONNX Runtime are installed, and torch is not."""
    packages, installed = tmp_path / "packages", Path(sysconfig.get_paths()["purelib"])
    packages.mkdir()
    for name in WITHOUT_TORCH:
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)

    def run(*words):
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"}
        # -S: no site-packages but those
        return subprocess.run([sys.executable, "-S", *map(str, words)], env=environment, capture_output=True, text=True)

    return run


@pytest.mark.slow
def test_the_script_runs_without_torch_and_its_times_are_read(subject, tmp_path, device, monkeypatch):
    model, images, space = subject
    folder = tmp_path / "new" / "bundle"
    script = write_bundle(model, images, folder, latency=Latency("onnxruntime", batch=2), space=space, networks=12)
    assert device("-c", "import torch").returncode == 1
    busy = device(script, "--rounds", 6, "--noise", -1)
    assert (busy.returncode, "the machine is too busy; try again" in busy.stderr) == (1, True)
    assert not (folder / "times.csv").exists()
    done = device(script, "--rounds", 6, "--noise", 100)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((folder / "times.csv").read_text().splitlines()))
    expected = [" ".join(map(str, w)) for _, w in zip(range(12), draws(space, 0), strict=False)]
    assert [row["widths"] for row in rows] == expected
    assert all(float(row["milliseconds"]) > 0 for row in rows)
    assert {(row["engine"], row["threads"], row["batch"]) for row in rows} == {("onnxruntime", "1", "2")}
    monkeypatch.setattr(measure, "BUSY", np.inf)  # of a test's machine nothing is known
    latency = latency_from(folder / "times.csv", space, path=tmp_path / "phone.json")
    assert latency == Latency("onnxruntime", batch=2)
    assert latency.model.count == 12
    assert latency.model.machine == rows[0]["device"]
    assert "onnxruntime" in rows[0]["device"]
    assert read_latency(tmp_path / "phone.json").model == latency.model


@pytest.mark.slow
def test_the_files_of_a_bundle_are_the_networks(subject, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, images, space = subject
    write_bundle(model, images, tmp_path / "b", latency=Latency("onnxruntime"), networks=12)
    bundle = json.loads((tmp_path / "b" / "bundle.json").read_text())
    assert bundle["inputs"] == {"": {"shape": [1, 1, 8, 8], "dtype": "float32", "high": 1}}
    assert [row["file"] for row in bundle["networks"]] == [f"network_{number:02}.onnx" for number in range(12)]
    for row in bundle["networks"][::4]:
        session = onnxruntime.InferenceSession(tmp_path / "b" / row["file"])
        (logits,) = session.run(None, {session.get_inputs()[0].name: images[:1].numpy()})
        with torch.no_grad():
            expected = build(model, space, tuple(row["widths"])).eval()(images[:1])
        assert np.allclose(logits, expected.numpy(), atol=1e-4)


@pytest.mark.slow
def test_the_commands_write_a_bundle_and_read_times(tmp_path):
    space = WidthSpace.trace(create("resnet_digits").build(), torch.zeros(2, 1, 8, 8))
    written = command("calibrate", "resnet_digits", "--engine", "onnxruntime", "--bundle", tmp_path / "b")
    assert written.exit_code == 0, written.output
    assert "run measure.py there" in written.output
    assert len(list((tmp_path / "b").glob("*.onnx"))) == 36
    times(tmp_path / "times.csv", space)
    read = command("calibrate", "resnet_digits", "--from", tmp_path / "times.csv", "--out", tmp_path / "phone.json")
    assert read.exit_code == 0, read.output
    assert "a board" in read.output
    assert "Fast multiples" in read.output
    assert read_latency(tmp_path / "phone.json") == Latency("other")
    device = ["--latency-model", tmp_path / "phone.json"]
    shown = command("profile", "resnet_digits", "--widths", "8,12,12,16,16,24", *device, "--multiple-of", "auto")
    assert re.search(
        r"Latency as predicted for a board: original [\d.]+ ms, narrowest .* ms, chosen widths", shown.output
    )
    other = command("profile", "resnet20", *device)
    assert (other.exit_code, "the network that it was fitted to" in other.stderr) == (2, True)
    for words, message in (
        (["--engine", "torch", "--bundle", tmp_path / "c"], "an engine that runs files"),
        (["--engine", "onnxruntime", "--bundle", tmp_path / "b"], "a new or empty folder"),
        (["--bundle", tmp_path / "c", "--out", tmp_path / "d.json"], "got --out or --from with it"),
        (["--from", tmp_path / "none.csv", "--out", tmp_path / "d.json"], "cannot be read"),
    ):
        refused = command("calibrate", "resnet_digits", *words)
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "phone.json", "times.csv"]


def times(file, space, count=20, columns=("widths", "milliseconds", "device"), change=lambda rows: rows):
    """A file of a device that multiplies a million times in a millisecond."""
    widths = [w for _, w in zip(range(count), draws(space, 0), strict=False)]
    macs = space.macs_terms(np.array(widths))
    facts = {"device": "a board", "noise": "0.01", "engine": "onnxruntime", "threads": "1", "batch": "1"}
    rows = [
        {"widths": " ".join(map(str, w)), "milliseconds": f"{0.01 + m / 1e6:.6f}", **facts}
        for w, m in zip(widths, macs.tolist(), strict=True)
    ]
    with open(file, "w", newline="") as lines:
        writer = csv.DictWriter(lines, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(change(rows))
    return file


def test_times_of_any_source_make_a_model(subject, tmp_path):
    _, _, space = subject
    latency = latency_from(times(tmp_path / "t.csv", space), space)
    unseen = np.array([w for _, w in zip(range(12), draws(space, 5), strict=False)])
    expected = 1e4 + space.macs_terms(unseen)
    assert np.allclose(latency.model.predict(unseen), expected, rtol=0.02)
    assert latency.model.machine == "a board"
    twice = times(tmp_path / "t2.csv", space, change=lambda rows: [*rows, *rows])
    assert latency_from(twice, space).model.count == 20
    without = times(tmp_path / "t3.csv", space, columns=("widths", "milliseconds"), change=lambda rows: rows[2:])
    found = latency_from(without, space)
    assert found.model.machine == "other, times of t3.csv"
    assert found.model.original == pytest.approx(1e4 + space.reference.macs, rel=0.05)


def with_row(number, **values):
    def change(rows):
        rows[number] |= values
        return rows

    return change


ALL = ("widths", "milliseconds", "noise", "engine", "threads", "batch", "device")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": ("milliseconds",)}, "has no widths"),
        ({"change": with_row(3, milliseconds="fast")}, "line 5 of .*: could not convert string to float: 'fast'"),
        ({"change": with_row(3, milliseconds="-1")}, "line 5 of .*a time must be positive"),
        ({"change": with_row(3, milliseconds="nan")}, "line 5 of .*a time must be positive"),
        ({"change": with_row(0, widths="1 2")}, "line 2 of .*widths need one entry per group"),
        ({"change": with_row(0, widths="")}, "line 2 of .*widths need one entry per group"),
        (
            {"change": with_row(7, device="a phone")},
            "times must be of one device; the device of line 9 of .* is 'a phone'",
        ),
        ({"count": 11}, "at least 12 networks; .* has 11"),
        ({"change": lambda rows: [row | {"noise": "0.3"} for row in rows]}, "they differ by 30%: the machine is too"),
        ({"change": lambda rows: [row | {"engine": "tensorrt"} for row in rows]}, "an engine must be one of"),
        ({"change": lambda rows: [row | {"threads": "two"} for row in rows]}, "int of at least 1; got 'two'"),
    ],
)
def test_wrong_times_are_refused_with_their_line(subject, tmp_path, settings, message):
    _, _, space = subject
    file = times(tmp_path / "t.csv", space, **{"columns": ALL, **settings})
    with pytest.raises(BudgetError, match=message):
        latency_from(file, space, path=tmp_path / "model.json")
    assert not (tmp_path / "model.json").exists()


def test_times_of_another_engine_than_asked_for_are_refused(subject, tmp_path):
    _, _, space = subject
    file = times(tmp_path / "t.csv", space, columns=ALL)
    assert latency_from(file, space, Latency("onnxruntime")).engine == "onnxruntime"
    with pytest.raises(BudgetError, match=r"was measured with engine onnxruntime; got openvino: leave it out"):
        latency_from(file, space, Latency("openvino"))


def test_a_bundle_that_fails_leaves_nothing(subject, tmp_path, monkeypatch):
    model, images, space = subject
    with pytest.raises(BudgetError, match="at least 12 networks; got 3"):
        write_bundle(model, images, tmp_path / "b", latency=Latency("onnxruntime"), space=space, networks=3)

    written = []

    class Stopped(OnnxRuntime):
        def write(self, network, inputs):
            if written:
                raise KeyboardInterrupt
            written.append(network)
            return super().write(network, inputs)

    monkeypatch.setattr("bcnet.latency.bundle.engine_of", lambda name: Stopped())
    with pytest.raises(KeyboardInterrupt):
        write_bundle(model, images, tmp_path / "b", latency=Latency("onnxruntime"), space=space)
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="a new or empty folder"):
        write_bundle(model, images, tmp_path / "file", latency=Latency("onnxruntime"), space=space)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_search_keeps_to_a_device_that_is_not_here(tmp_path, monkeypatch):
    space = WidthSpace.trace(TinyNetwork(), torch.zeros(2, 1, 8, 8), num_choices=4)
    latency = latency_from(times(tmp_path / "t.csv", space), space)
    steps = {group.name: 2 for group in space.groups[1:]}
    monkeypatch.setattr("bcnet.api.resolution.multiples", lambda space, model: steps)
    outcome = tiny_search(tmp_path / "run", budget=Budget({latency: 0.6}), space={"multiple_of": "auto"})
    bound = outcome.result.networks["searched"].others["latency"]
    assert bound <= 0.6 * latency.model.original
    assert outcome.result.measured_latency is None
    run = bcnet.Run.open(tmp_path / "run")
    assert run.settings.space.multiple_of == steps
    assert all(width % 2 == 0 or width == g.max_width for g in run.space.groups[1:] for width in g.choices)
    assert all(width % 2 == 0 for width in outcome.widths[1:])
    monkeypatch.setattr("bcnet.api.resolution.multiples", lambda space, model: {})  # a run stays what it is
    again = tiny_search(tmp_path / "run", budget=Budget({latency: 0.6}), space={"multiple_of": "auto"})
    assert again.widths == outcome.widths
    with pytest.raises(BudgetError, match=r'multiple_of="auto" takes the multiples that pay from a calibration'):
        tiny_search(tmp_path / "new", budget=Budget(macs=0.6), space={"multiple_of": "auto"})
    assert not (tmp_path / "new").exists()
