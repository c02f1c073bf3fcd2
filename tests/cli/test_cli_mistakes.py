"""Every mistake ends with one clear message, exit code 2, no traceback, and nothing half-written."""

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from bcnet.cli.app import app

QUICK = ["--epochs", "1", "--method", "bcnet:population=2,generations=1,parents=1", "--threads", "1"]


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


def method(fields, name="bcnet"):
    return search(method=f"{name}:{fields}")


def given(widths):
    return search(budget=None, method=f"given:values={widths}")


MISTAKES = {
    "unknown model": (
        search(model="resnet_digit"),
        "a model must be a name of ours.*got 'resnet_digit'.*resnet_digits",
    ),
    "unknown data": (search(data="digit"), "a data set must be one of digits, scattered_digits, cifar10.*got 'digit'"),
    "unknown module": (search(model="no_such_module:f"), "module of model 'no_such_module:f' has to be importable"),
    "unknown factory": (search(model="broken_models:f"), "has to name a function or class of 'broken_models'"),
    "factory fails": (search(model="broken_models:failing"), "it failed with RuntimeError: no luck"),
    "factory of a number": (search(model="broken_models:number"), "has to return a torch.nn.Module; got int"),
    "model rejects the images": (search(model="broken_models:Wide"), "must run on the example input, shape"),
    "budget zero": (search(budget="0"), r"budget macs must be a ratio .* got 0"),
    "budget above range": (search(budget="1.6"), r"in \(0, 1.5\] of the original network.*got 1.6"),
    "budget of words": (
        search(budget="half"),
        r"a limit on (macs|params) must be a ratio such as 0.5 or a count.*got 'half'",
    ),
    "budget not a number": (search(budget="nan"), "a limit on (macs|params) must be a ratio"),
    "budget below the narrowest": (search(budget="0.00001"), r"narrowest network of the space, [\d,]+ MACs"),
    "budget of one MAC": (search(budget="1"), r"narrowest network of the space, [\d,]+ MACs"),
    "parameter budget of words": (search(params_budget="x"), "a limit on params must be a ratio"),
    "batch above the images": (search(set="batch_size=5000"), "at most the number of images"),
    "unknown recipe": (search(recipe="vgg"), "a recipe must be a .yaml file or one of .*digits"),
    "unknown key": (search(set="speed=3"), "unknown key 'speed': the keys are optimizer, lr"),
    "wrong type": (search(set="lr=fast"), "'lr' must be a valid number.*got 'fast'"),
    "set without value": (search(set="lr"), "--set takes key=value"),
    "set of broken YAML": (search(set="lr=[1"), "takes a number, a word or a YAML value"),
    "no epochs": (search(epochs=0), "'epochs' must be greater than 0; got 0"),
    "no population": (method("population=0"), "'population' must be greater than 0; got 0"),
    "no choices": (search(num_choices=0), "'num_choices' must be greater than 0; got 0"),
    "ratio above one": (search(min_ratio=2), "'min_ratio' must be less than or equal to 1; got 2"),
    "no multiple": (
        search(multiple_of=0),
        "'multiple_of' must be an int of at least 1, 'fast', 'auto', .*; got 0",
    ),
    "negative seed": (search(seed=-1), "'seed' must be greater than or equal to 0; got -1"),
    "unknown strategy": (method("strategy=x"), "'strategy' must be 'complementary', 'complementary-bounded'"),
    "unknown score": (method("score=f1"), "'score' must be 'accuracy', 'loss', or a function .*; got 'f1'"),
    "unknown precision": (search(precision="fp8"), "'precision' must be 'auto', 'fp32'"),
    "fp16 on a CPU": (search(precision="fp16", device="cpu"), "precision fp16 needs a GPU"),
    "unknown device": (search(device="abacus"), "device must be one that torch has here.*got 'abacus'"),
    "population of words": (method("population=many"), "'population' must be .*got 'many'"),
    "no threads": (search(threads=0), "'threads' must be greater than 0; got 0"),
    "missing folder": (search(data="imagefolder:{tmp}/none"), "none"),
    "missing file": (search(data="parquet:{tmp}/none"), "none"),
    "no number in the loss": (search(model="broken_models:Exploding"), "a loss must be a finite number"),
    "profile of an unknown model": (["profile", "vgg"], "a model must be a name of ours.*got 'vgg'.*nearest: vgg19"),
    "profile of nothing": (["profile"], "give a MODEL"),
    "profile of another input": (["profile", "broken_models:Flat"], "An input of .* was assumed: give --image-size"),
    "profile of words": (["profile", "resnet_digits", "--widths", "a,b"], "--widths are whole numbers"),
    "profile of too few": (["profile", "resnet_digits", "--widths", "1,2"], "one entry per group, 6 here; got 2"),
    "profile of too wide": (["profile", "resnet_digits", "--widths", "99,1,1,1,1,1"], r"an int in \[1, 16\].*got 99"),
    "profile without classes": (
        ["profile", "resnet_digits", "--classes", "0"],
        "num_classes must be a positive int; got 0",
    ),
    "profile without pixels": (["profile", "resnet_digits", "--image-size", "0"], "image_size must be a positive int"),
    "profile without choices": (["profile", "resnet_digits", "--num-choices", "0"], "num_choices.*got 0"),
    "profile of a ratio above one": (["profile", "resnet_digits", "--min-ratio", "2"], "min_ratio.*got 2"),
    "profile without multiple": (["profile", "resnet_digits", "--multiple-of", "0"], "multiple_of.*got 0"),
    "profile of no shape": (["profile", "resnet_digits", "--input", "1xa"], "a shape without the batch.*got '1xa'"),
    "profile of no type": (["profile", "resnet_digits", "--input", "8:zeros"], "a shape without the batch.*got '8:z"),
    "profile of no pattern": (["profile", "resnet_digits", "--ignore", "layer9.*"], "layer9"),
    "profile of only nothing": (["profile", "resnet_digits", "--only", "layer9.*"], "layer9"),
    "profile of a path": (["profile", "models/net.py"], "a model must be a name of ours.*got 'models/net.py'"),
    "profile of a broken name": (["profile", "a b:c"], "a model must be a name of ours.*got 'a b:c'"),
    "profile of half a name": (["profile", "broken_models:"], "a model must be a name of ours.*got 'broken_models:'"),
    "profile of no torchvision model": (["profile", "torchvision:resnet51"], "torchvision:NAME takes.*got 'resnet51'"),
    "profile of no timm model": (["profile", "timm:resnet51x"], "timm:NAME takes one of .*got 'resnet51x'"),
    "seed beyond 32 bits": (search(seed=2**32), "'seed' must be less than 4294967296; got 4294967296"),
    "epochs beyond all time": (search(epochs=10**30), "'epochs' must be less than 2147483648; got 10{30}"),
    "population beyond memory": (method(f"population={2**31}"), "'population' must be less than 2147483648"),
    "no supernet epochs": (method("epochs=0"), "'epochs' must be greater than 0; got 0"),
    "no generations": (method("generations=0"), "'generations' must be greater than 0; got 0"),
    "threads beyond reason": (search(threads=5000), "'threads' must be less than or equal to 4096; got 5000"),
    "no pixels": (search(image_size=0), "'image_size' must be greater than 0; got 0"),
    "a GPU that is not there": (search(device="cuda:99"), "device must be one that torch has here.*got 'cuda:99'"),
    "parameter budget below the narrowest": (search(params_budget="1"), r"narrowest network of the space.*parameters"),
    "budget with a unit": (
        search(budget="150 MMACs"),
        "a limit on (macs|params) must be a ratio such as 0.5 or a count.*got '150 MMACs'",
    ),
    "negative budget": (
        search(budget="-0.5"),
        "a limit on (macs|params) must be a ratio such as 0.5 or a count.*got '-0.5'",
    ),
    "negative pause between checkpoints": (
        search(checkpoint_seconds=-1),
        "checkpoint_seconds must be a number.*got -1",
    ),
    "no pause between checkpoints": (search(checkpoint_seconds="nan"), "checkpoint_seconds must be a number.*got nan"),
    "unknown log": (search(log="loud"), "loud"),
    "set without key": (search(set="=3"), "--set takes key=value.*got '=3'"),
    "set inside of a number": (search(set="lr.peak=1"), "'lr' has no settings inside"),
    "set of no number": (search(set="lr=.nan"), "'lr' must be a finite number; got nan"),
    "set of an alias": (search(set="lr=&a [*a]"), "takes a number, a word or a YAML value"),
    "set of code": (search(set="lr=!!python/name:os.system"), "takes a number, a word or a YAML value"),
    "set of a negative batch": (search(set="batch_size=-8"), "'batch_size' must be greater than 0; got -8"),
    "set of momentum one": (search(set="momentum=1"), "'momentum' must be less than 1; got 1"),
    "set of smoothing one": (search(set="label_smoothing=1"), "'label_smoothing' must be less than 1; got 1"),
    "set of no clipping": (search(set="clip_norm=0"), "'clip_norm' must be greater than 0; got 0"),
    "set of an unknown schedule": (search(set="schedule.kind=linear"), "schedule.*'cosine', 'step', 'exponential'"),
    "set of an unknown policy": (search(set="on_bad_step=hope"), "'on_bad_step' must be 'stop' or 'skip'; got 'hope'"),
    "set of a weight above one": (search(set="distillation.weight=2"), "'distillation.weight' must be less than"),
    "recipe that is not there": (search(recipe="{tmp}/none.yaml"), "recipe file .*none.yaml cannot be read"),
    "recipe of text": (search(recipe="{tmp}/text.yaml"), "text.yaml must be a mapping of settings to values; got str"),
    "recipe of broken YAML": (search(recipe="{tmp}/broken.yaml"), "broken.yaml must be YAML; got text that is not"),
    "recipe of a bomb": (search(recipe="{tmp}/bomb.yaml"), "must be YAML.*an alias .* write the value out instead"),
    "recipe of code": (search(recipe="{tmp}/code.yaml"), "must be YAML.*could not determine a constructor"),
    "recipe without lr": (search(recipe="{tmp}/short.yaml"), "key 'lr' is required, and missing"),
    "recipe of a book": (search(recipe="{tmp}/long.yaml"), "must be YAML.*at most 65,536 are read"),
    "data of nothing": (search(data="parquet:"), "a data set must be one of digits.*got 'parquet:'"),
    "data of a broken repository": (search(data="hf:a/b/c"), "a data set must be one of .*got 'hf:a/b/c'"),
    "parquet of text": (search(data="parquet:{tmp}/text.yaml"), "takes parquet files; .* could not be read"),
    "folder of a file": (search(data="imagefolder:{tmp}/text.yaml"), "takes a folder; got .*text.yaml"),
    "folder of nothing": (
        search(data="imagefolder:{tmp}/empty"),
        "a folder of images must have a subfolder for each class",
    ),
    "run below a file": (search(out="{tmp}/text.yaml/run"), "folder .*run cannot be made: Not a directory"),
    "dry run below the narrowest": ([*search(budget="1"), "--dry-run"], r"narrowest network of the space"),
    "report of nothing": (["report", "{tmp}/none"], "is not a run directory"),
    "report of a file": (["report", "{tmp}/text.yaml"], "is not a run directory"),
    "report of another folder": (["report", "{tmp}"], "is not a run directory: it has no settings.json"),
    "report of a damaged run": (["report", "{tmp}/damaged"], "settings.json is damaged: its checksum does not match"),
    "report of a run with a link": (["report", "{tmp}/linked"], "must hold files and folders of its own.*is a link"),
    "status of nothing": (["status", "{tmp}/none"], "a run directory must be a folder; .*none is not there"),
    "status of a file": (["status", "{tmp}/text.yaml"], "a run directory must be a folder; .*text.yaml is a file"),
    "status of another folder": (["status", "{tmp}"], "is not a run directory: it has no settings.json"),
    "export of nothing": (["export", "{tmp}/none"], "is not a run directory"),
    "export of an unknown format": (
        ["export", "{tmp}/none", "--format", "tflite"],
        "a format must be one of onnx, pt2, safetensors, litert, litert:int8, ncnn, mnn, executorch, executorch:int8; "
        "got 'tflite'",
    ),
    "size to resize from": (["export", "{tmp}/none", "--from-size", "480"], "640; got '480'"),
    "upload without a name": (["export", "{tmp}/none", "--push", "net"], "must be ORG/NAME"),
    "a negative rate": (search(set="lr=-1"), "'lr' must be greater than 0; got -1"),
    "reuse of nothing": (search(reuse="{tmp}/none"), "is not a run directory"),
    "unknown method": (search(method="evolve"), "a method must be one of trainings, bcnet.*got 'evolve'"),
    "unknown field": (method("size=3"), "unknown key 'size'.*population"),
    "method without value": (method("population"), "must be key=value .*population.*got 'population'"),
    "effort beside the supernet": (search(effort="small"), "--effort belongs to the method trainings; got small"),
    "unknown effort": (
        search(method="trainings", effort="huge"),
        "'effort' must be 'small', 'medium' or 'large'.*got 'huge'",
    ),
    "unknown start": (search(start="zero"), "start must be one of scratch, .*got 'zero'"),
    "unknown end": (search(until="tomorrow"), "until must be .*got 'tomorrow'"),
    "unknown option": (search(option="speed=3"), "options: unknown key 'speed'"),
    "option out of range": (
        search(option="examples=99"),
        "options: 'examples' must be less than or equal to 24; got 99",
    ),
    "option without value": (search(option="examples"), "--option takes key=value.*got 'examples'"),
    "given words": (given("a,b"), "widths are whole numbers with commas.*got 'a,b'"),
    "given too few": (given("1,2"), "one entry per group, 6 here; got 2"),
    "given no file": (given("{tmp}/none.json"), "none.json cannot be read"),
    "given what nobody published": (given("published:x"), "published widths exist for mobilenetv2, vgg19"),
    "recipe of no name": (["recipes", "none"], "a recipe must be a .yaml file or one of digits.*got 'none'"),
}


USAGE = {
    "an unknown command": (["serach"], "No such command 'serach'"),
    "an unknown option": (search(speed=3), "No such option: --speed"),
    "a measure of a command without a budget": (
        ["recipes", "--macs", "0.5"],
        r"No such option: --macs(?!.*--budget)",
    ),
    "a measure in place of the budget": (search(macs=0.5), r"No such option: --macs .*--budget macs="),
    "a word for a number": (search(epochs="many"), "Invalid value for '--epochs'"),
    "a fraction for a count": (search(threads=2.5), "Invalid value for '--threads'"),
    "a missing run": (["report"], "Missing argument"),
    "two models": (["profile", "vgg19", "resnet20"], "unexpected extra argument"),
}
WRITES = ("no number in the loss",)  # known only once the run is on its way


def files_of_mistakes(place: Path) -> None:
    """Recipes, folders and run directories that are wrong, one way each."""
    (place / "text.yaml").write_text("just words")
    (place / "broken.yaml").write_text("lr: [1")
    (place / "bomb.yaml").write_text("a: &a [1, 1]\nb: &b [*a, *a]\nlr: [*b, *b]\n")
    (place / "code.yaml").write_text("lr: !!python/object/apply:os.system ['touch owned']\n")
    (place / "short.yaml").write_text("epochs: 1\nbatch_size: 8\n")
    (place / "long.yaml").write_text("# " + "x" * 70_000)
    for name in ("empty", "damaged", "linked"):
        (place / name).mkdir()
    (place / "damaged" / "settings.json").write_text('{"sha256": "0", "model": "resnet_digits"}')
    (place / "linked" / "settings.json").symlink_to(place / "text.yaml")


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
    files_of_mistakes(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    outcome = invoke(arguments, tmp_path)
    assert_refused(outcome, message)
    if name in WRITES:
        assert not (tmp_path / "run" / "result.json").exists()
        assert not list(tmp_path.glob("run/*.safetensors"))
    else:
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", USAGE)
def test_a_slip_of_the_pen_shows_the_usage(name, tmp_path):
    arguments, message = USAGE[name]
    outcome = invoke(arguments, tmp_path)
    assert outcome.exit_code == 2
    assert re.search(message, " ".join(outcome.stderr.split()))
    assert "Traceback" not in outcome.output
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unknown model", "report of a damaged run"])
def test_a_process_ends_in_the_same_way(name, tmp_path):
    arguments, message = MISTAKES[name]
    files_of_mistakes(tmp_path)
    command = [sys.executable, "-m", "bcnet", *(text.replace("{tmp}", str(tmp_path)) for text in arguments)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert re.search(message, ended.stderr, re.DOTALL)
    assert ended.stderr.startswith("Error: ")
    assert ended.stderr.count("\n") == 1


def test_a_class_without_images(tmp_path):
    data = folder_of_images(tmp_path / "images", empty=True)
    assert_refused(invoke(search(data=f"imagefolder:{data}"), tmp_path), "b")


def test_a_folder_named_without_its_kind(tmp_path):
    words = search(data=str(folder_of_images(tmp_path / "images")))
    assert_refused(invoke(words, tmp_path), f"a data set must be one of .*is imagefolder:{tmp_path}/images")


def test_fewer_images_than_a_batch(tmp_path):
    data = folder_of_images(tmp_path / "images", count=20)
    words = search(data=f"imagefolder:{data}", set="batch_size=128")
    assert_refused(invoke(words, tmp_path), "a batch size must be at most the number of images, .*--set batch_size=")


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
    assert_refused(invoke(search(), tmp_path), "is not a run directory: it has no settings.json and holds notes.txt")
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "run").write_text("mine")
    assert_refused(invoke(search(), tmp_path), "is a file")
