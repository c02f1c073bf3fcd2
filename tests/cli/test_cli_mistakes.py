"""Every mistake ends with one clear message, exit code 2, no traceback, and nothing half-written."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from bcnet.cli.app import app

QUICK = ["--epochs", "1", "--population", "2", "--generations", "1", "--threads", "1"]


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def folder_of_images(place: Path, classes=("a", "b"), count=3, broken=False, empty=False) -> Path:
    generator = np.random.default_rng(0)
    for part in ("train", "test"):
        for name in classes:
            folder = place / part / name
            folder.mkdir(parents=True)
            for number in range(0 if empty and part == "train" and name == classes[-1] else count):
                pixels = generator.integers(255, size=(8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    if broken:
        (place / "train" / classes[0] / "0.png").write_bytes(b"no image at all")
    return place


def parquet_of_labels(place: Path, labels: list[int]) -> Path:
    from datasets import Dataset

    pixels = np.zeros((8, 8), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="png")
    rows = {"image.bytes": [buffer.getvalue()] * len(labels), "label": labels}
    place.mkdir()
    for part in ("train", "test"):
        Dataset.from_dict(rows).to_parquet(str(place / f"{part}.parquet"))
    return place


def search(**changes):
    """The arguments of a search of the digits, changed."""
    options = {"model": "resnet_digits", "data": "digits", "budget": "0.5", "out": "{tmp}/run"} | changes
    flags = [
        text
        for name, value in options.items()
        if value is not None
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    quick = [text for pair in zip(QUICK[::2], QUICK[1::2], strict=True) if pair[0] not in flags for text in pair]
    return ["search", *flags, *quick]


MISTAKES = {
    "unknown model": (search(model="resnet_digit"), "a model is a name of ours.*got 'resnet_digit'.*resnet_digits"),
    "unknown data": (search(data="digit"), "a data set is one of digits, cifar10.*got 'digit'"),
    "unknown module": (search(model="no_such_module:f"), "module of model 'no_such_module:f' has to be importable"),
    "unknown factory": (search(model="broken_models:f"), "has to name a function or class of 'broken_models'"),
    "factory fails": (search(model="broken_models:failing"), "it failed with RuntimeError: no luck"),
    "factory of a number": (search(model="broken_models:number"), "has to return a torch.nn.Module; got int"),
    "model rejects the images": (search(model="broken_models:Wide"), "must run on the example input, shape"),
    "budget zero": (search(budget="0"), r"budget macs is a ratio .* got 0"),
    "budget above range": (search(budget="1.6"), r"in \(0, 1.5\] of the original network.*got 1.6"),
    "budget of words": (search(budget="half"), r"--budget is a ratio such as 0.5 or a count.*got 'half'"),
    "budget not a number": (search(budget="nan"), "--budget is a ratio"),
    "budget below the narrowest": (search(budget="0.00001"), r"narrowest network of the space, [\d,]+ MACs"),
    "budget of one MAC": (search(budget="1"), r"narrowest network of the space, [\d,]+ MACs"),
    "parameter budget of words": (search(params_budget="x"), "--params-budget is a ratio"),
    "batch above the images": (search(set="batch_size=5000"), "at most the number of images"),
    "unknown recipe": (search(recipe="vgg"), "a recipe is a .yaml file or one of .*digits"),
    "unknown key": (search(set="speed=3"), "unknown key 'speed': the keys are optimizer, lr"),
    "wrong type": (search(set="lr=fast"), "'lr' must be a valid number.*got 'fast'"),
    "set without value": (search(set="lr"), "--set takes key=value"),
    "set of broken YAML": (search(set="lr=[1"), "takes a number, a word or a YAML value"),
    "no epochs": (search(epochs=0), "'epochs' must be greater than 0; got 0"),
    "no population": (search(population=0), "'population' must be greater than 0; got 0"),
    "no choices": (search(num_choices=0), "'num_choices' must be greater than 0; got 0"),
    "ratio above one": (search(min_ratio=2), "'min_ratio' must be less than or equal to 1; got 2"),
    "no multiple": (search(multiple_of=0), "'multiple_of' must be greater than 0; got 0"),
    "negative seed": (search(seed=-1), "'seed' must be greater than or equal to 0; got -1"),
    "unknown strategy": (search(strategy="x"), "'strategy' must be 'complementary', 'bilateral'"),
    "unknown score": (search(score="f1"), "'score' must be 'accuracy' or 'loss'; got 'f1'"),
    "unknown precision": (search(precision="fp8"), "'precision' must be 'auto', 'fp32'"),
    "fp16 on a CPU": (search(precision="fp16", device="cpu"), "precision fp16 needs a GPU"),
    "unknown device": (search(device="abacus"), "device must be one that torch has here.*got 'abacus'"),
    "no threads": (search(threads=0), "'threads' must be greater than 0; got 0"),
    "missing folder": (search(data="imagefolder:{tmp}/none"), "none"),
    "missing file": (search(data="parquet:{tmp}/none"), "none"),
    "no number in the loss": (search(model="broken_models:Exploding"), "a loss must be a finite number"),
    "profile of an unknown model": (["profile", "vgg"], "a model is a name of ours.*got 'vgg'.*nearest: vgg19"),
    "profile of nothing": (["profile"], "give a MODEL"),
    "profile of words": (["profile", "resnet_digits", "--widths", "a,b"], "--widths are whole numbers"),
    "profile of too few": (["profile", "resnet_digits", "--widths", "1,2"], "one entry per group, 6 here; got 2"),
    "profile of too wide": (["profile", "resnet_digits", "--widths", "99,1,1,1,1,1"], r"an int in \[1, 16\].*got 99"),
    "report of nothing": (["report", "{tmp}/none"], "is no run directory"),
}


def invoke(arguments, tmp_path):
    return CliRunner().invoke(app, [text.replace("{tmp}", str(tmp_path)) for text in arguments])


def assert_refused(outcome, message):
    assert outcome.exit_code == 2, outcome.output
    assert re.search(message, outcome.stderr, re.DOTALL), outcome.stderr
    assert "Traceback" not in outcome.output
    assert outcome.stderr.startswith("Error: ")
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_with_one_message(name, tmp_path):
    arguments, message = MISTAKES[name]
    outcome = invoke(arguments, tmp_path)
    assert_refused(outcome, message)
    assert not (tmp_path / "run" / "result.json").exists()
    assert not list(tmp_path.glob("run/*.safetensors"))


def test_a_class_without_images(tmp_path):
    data = folder_of_images(tmp_path / "images", empty=True)
    assert_refused(invoke(search(data=f"imagefolder:{data}"), tmp_path), "b")


def test_fewer_images_than_a_batch(tmp_path):
    data = folder_of_images(tmp_path / "images", count=20)
    assert_refused(invoke(search(data=f"imagefolder:{data}"), tmp_path), "a batch size is at most the number of images")


def test_an_unreadable_image(tmp_path):
    data = folder_of_images(tmp_path / "images", broken=True)
    assert_refused(invoke(search(data=f"imagefolder:{data}"), tmp_path), "0.png")


@pytest.mark.parametrize("labels", [[0, 1, -1] * 10, [0, 1, 7] * 10])
def test_labels_out_of_range(tmp_path, labels):
    data = parquet_of_labels(tmp_path / "data", labels)
    assert_refused(invoke(search(data=f"parquet:{data}"), tmp_path), "label|class")


def test_a_folder_that_is_no_run_directory(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert_refused(invoke(search(), tmp_path), "is no run directory: it has no settings.json and holds notes.txt")
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "run").write_text("mine")
    assert_refused(invoke(search(), tmp_path), "is a file")


def test_a_missing_option_shows_the_usage(tmp_path):
    outcome = invoke(["search", "--model", "resnet_digits"], tmp_path)
    assert outcome.exit_code == 2
    assert "Missing option" in outcome.stderr
    assert "Traceback" not in outcome.output


def test_an_unknown_command_shows_the_usage(tmp_path):
    outcome = invoke(["serach"], tmp_path)
    assert outcome.exit_code == 2
    assert "No such command" in outcome.stderr
