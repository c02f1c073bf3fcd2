"""The examples run to their end, in their quick form, and leave what they promise."""

import runpy
import sys

import pages
import pytest
from photographs import photographs

import bcnet

EXAMPLES = pages.ROOT / "examples"
FOLDER, TIMM, OWN = (EXAMPLES / f"{name}.py" for name in ("torchvision_folder", "timm_model", "own_training"))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return photographs(tmp_path_factory.mktemp("photographs"))


def run(script, monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", [str(script), *map(str, words), "--quick"])
    names = runpy.run_path(str(script), run_name="__main__")
    return names, capsys.readouterr().out


def check(folder, printed, factory=None):
    """A report, and a saved network that is within the budget, as printed."""
    network = folder / "export" / "network.safetensors"
    assert f"Report: {folder / 'report.html'}\nNetwork: {network}" in printed
    assert "searched" in (folder / "report.html").read_text(encoding="utf-8")
    assert not bcnet.load(network, factory).training
    return bcnet.FinishedRun.read(folder, factory).result["networks"]["searched"]["macs_ratio"]


def test_there_are_these_examples():
    assert set(EXAMPLES.glob("*.py")) == {FOLDER, TIMM, OWN}


@pytest.mark.slow
def test_torchvision_network_on_a_folder(images, tmp_path, monkeypatch, capsys):
    _, printed = run(FOLDER, monkeypatch, capsys, images, tmp_path / "run", "--image-size", 32)
    assert check(tmp_path / "run", printed) <= 0.5
    assert "original: " in printed


@pytest.mark.slow
def test_timm_network_in_eights(images, tmp_path, monkeypatch, capsys):
    words = (images, tmp_path / "run", "--model", "test_resnet", "--image-size", 32)
    _, printed = run(TIMM, monkeypatch, capsys, *words)
    assert check(tmp_path / "run", printed) <= 0.7
    result = bcnet.FinishedRun.read(tmp_path / "run").result
    assert all(width % 8 == 0 for width in result["networks"]["searched"]["widths"])
    assert "layer4" not in {group["name"].partition(".")[0] for group in result["groups"]}
    assert "x MACs" in printed


def test_training_of_ones_own(tmp_path, monkeypatch, capsys):
    names, printed = run(OWN, monkeypatch, capsys, tmp_path / "run")
    assert check(tmp_path / "run", printed, names["Listener"]) <= 0.5
    assert "A rising tone is heard as" in printed
    settings = (tmp_path / "run" / "settings.json").read_text(encoding="utf-8")
    assert "focal_loss" in settings
    assert "sureness" in settings
