"""The examples run to their end, in their quick form, and leave what they promise."""

import importlib
import json
import os
import re
import runpy
import subprocess
import sys

import numpy as np
import pages
import pytest
import torch
from photographs import photographs
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

import bcnet
from bcnet.cli.app import app

EXAMPLES = pages.ROOT / "examples"
NAMES = (
    *("torchvision_folder", "timm_model", "own_training", "masks_on_disk", "lightning_loop"),
    *("hugging_face_trainer", "timm_training", "boxes_on_disk", "sounds_on_disk"),
    *("monai_training", "yolo_loop", "dask_cluster"),
)
FOLDER, TIMM, OWN, MASKS, LIGHTNING, HUGGING_FACE, TIMM_TRAINING, *_ = (EXAMPLES / f"{name}.py" for name in NAMES)


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
    return bcnet.run.finished.FinishedRun.read(folder, factory).result.networks["searched"].macs_ratio


def test_there_are_these_examples():
    assert {file.stem for file in EXAMPLES.glob("*.py")} == set(NAMES)


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
    result = bcnet.run.finished.FinishedRun.read(tmp_path / "run").result
    assert all(width % 8 == 0 for width in result.networks["searched"].widths)
    assert "layer4" not in {group.name.partition(".")[0] for group in result.groups}
    assert "x MACs" in printed


@pytest.mark.slow
def test_training_of_ones_own(tmp_path, monkeypatch, capsys):
    names, printed = run(OWN, monkeypatch, capsys, tmp_path / "run")
    assert check(tmp_path / "run", printed, names["Listener"]) <= 0.5
    assert "A rising tone is heard as" in printed
    settings = (tmp_path / "run" / "settings.json").read_text(encoding="utf-8")
    assert "focal_loss" in settings
    assert "sureness" in settings


@pytest.fixture
def voc(tmp_path):
    """Pictures of several sizes with a red square, which is a horse, as Pascal VOC keeps them."""
    place = tmp_path / "VOCdevkit" / "VOC2012"
    draws = np.random.default_rng(0)
    for part, count in (("train", 16), ("val", 12)):
        for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
            (place / folder).mkdir(parents=True, exist_ok=True)
        names = [f"{part}{number}" for number in range(count)]
        (place / "ImageSets" / "Segmentation" / f"{part}.txt").write_text("\n".join(names))
        for name in names:
            pixels = draws.integers(90, size=(*draws.integers(40, 60, 2), 3), dtype=np.uint8)
            mask = np.zeros(pixels.shape[:2], np.uint8)
            pixels[10:25, 10:25, 0] += 150
            mask[10:25, 10:25], mask[10, 10:25] = 13, 255  # its rim belongs to nothing
            Image.fromarray(pixels).save(place / "JPEGImages" / f"{name}.jpg")
            palette = Image.fromarray(mask, mode="P")
            palette.putpalette(list(range(256)) * 3)
            palette.save(place / "SegmentationClass" / f"{name}.png")
    return tmp_path


@pytest.mark.slow
def test_masks_on_disk_from_the_command_line(voc, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("VOC", str(voc))
    example = importlib.import_module("masks_on_disk")
    monkeypatch.setattr(example, "SIZE", 16)
    train, validation, _ = example.loaders()
    pictures, masks = next(iter(train))
    assert (pictures.shape, masks.shape) == ((16, 3, 16, 16), (16, 16, 16))
    assert set(masks.unique().tolist()) <= {0, 13, 255}
    assert {13, 255} < set(next(iter(validation))[1].unique().tolist())
    words = next(line for line in example.__doc__.splitlines() if "bcnet search" in line).split()
    rest = ["--task", "segmentation:classes=21", "--budget", "0.5", "--out", str(tmp_path / "run")]
    small = ["--method", "bcnet:population=4,generations=1,parents=2", "--epochs", "1", "--set", "lr=0.05"]
    outcome = CliRunner().invoke(app, ["search", *words[2:6], *rest, *small])
    assert outcome.exit_code == 0, outcome.output
    assert "miou" in json.loads((tmp_path / "run" / "result.json").read_text())["networks"]["searched"]["test"]


def searched(example, tmp_path, *words):
    """The result of the command that an example's text has, made small."""
    text = example.__doc__.replace("\\\n", " ")
    said = next(line for line in text.splitlines() if "bcnet search" in line).split()[1:]
    said[said.index("--out") + 1] = str(tmp_path / "run")
    small = ["--method", "bcnet:population=4,generations=1,parents=2", "--epochs", "1", "--set", "lr=0.05"]
    outcome = CliRunner().invoke(app, [*said, *words, *small])
    assert outcome.exit_code == 0, outcome.output
    return json.loads((tmp_path / "run" / "result.json").read_text())


@pytest.fixture
def coco(tmp_path):
    """Pictures of several sizes with a red square, which is a horse, as COCO keeps them; every fourth has none."""
    draws = np.random.default_rng(0)
    for part, count in (("train", 16), ("val", 16)):
        (tmp_path / f"{part}2017").mkdir()
        pictures, boxes = [], []
        for number in range(count):
            height, width = draws.integers(40, 60, 2).tolist()
            pixels = draws.integers(90, size=(height, width, 3), dtype=np.uint8)
            if number % 4:
                pixels[10:25, 10:30, 0] += 150
                boxes.append(
                    {"image_id": number, "category_id": 19, "bbox": [10, 10, 20, 15], "area": 300, "iscrowd": 0}
                )
            Image.fromarray(pixels).save(tmp_path / f"{part}2017" / f"{number}.jpg")
            pictures.append({"id": number, "file_name": f"{number}.jpg", "height": height, "width": width})
        boxes = [{"id": number, **box} for number, box in enumerate(boxes, 1)]
        page = {"images": pictures, "annotations": boxes, "categories": [{"id": 19, "name": "horse"}]}
        (tmp_path / "annotations").mkdir(exist_ok=True)
        (tmp_path / "annotations" / f"instances_{part}2017.json").write_text(json.dumps(page))
    return tmp_path


@pytest.mark.slow
def test_boxes_on_disk_from_the_command_line(coco, tmp_path, monkeypatch):
    pytest.importorskip("pycocotools", reason="COCO's files are read by pycocotools (extra detection)")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("COCO", str(coco))
    example = importlib.import_module("boxes_on_disk")
    train, validation, _ = example.loaders()
    pictures, targets = next(iter(train))
    assert (pictures.shape, targets["boxes"].shape) == ((16, 3, 128, 128), (16, 100, 4))
    assert sorted((targets["labels"] >= 0).sum(1).tolist()) == [0] * 4 + [1] * 12
    for _, found in validation:
        assert set(found["labels"].unique().tolist()) == {-1, 19}
    monkeypatch.setattr(example, "BATCH", 8)
    result = searched(example, tmp_path)
    assert set(result["networks"]["searched"]["test"]) == {"ap", "ap50"}
    (coco / "val2017" / "0.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"0\.jpg"):
        next(iter(example.loaders()[1]))


@pytest.mark.slow
def test_sounds_on_disk_from_the_command_line(tmp_path, monkeypatch):
    soundfile = pytest.importorskip("soundfile", reason="sounds are read by soundfile")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("SOUNDS", str(tmp_path / "sounds"))
    example = importlib.import_module("sounds_on_disk")
    with pytest.raises(ValueError, match=r"in a folder for each class.*there are none"):
        example.loaders()
    time = np.arange(4000) / 16_000
    for pitch in (200, 400, 800):
        (tmp_path / "sounds" / f"tone{pitch}").mkdir(parents=True)
        for number in range(40):
            wave = np.sin(2 * np.pi * pitch * (1 + number / 500) * time)
            both = np.stack([wave, wave], 1) if number % 2 else wave
            soundfile.write(tmp_path / "sounds" / f"tone{pitch}" / f"{number}.wav", both, 16_000)
    monkeypatch.setattr(example, "LENGTH", 2000)
    loaders = example.loaders()
    waves, labels = next(iter(loaders.train))
    assert (waves.shape, waves.dtype) == ((32, 1, 2000), torch.float32)
    assert set(labels.tolist()) == {0, 1, 2}
    assert sum(len(loader.dataset) for loader in (loaders.train, loaders.validation, loaders.test)) == 120
    result = searched(example, tmp_path)
    assert "top1" in result["networks"]["searched"]["test"]
    rows = bcnet.Run.open(tmp_path / "run").examples["rows"]
    assert {row[1]["words"] for row in rows} <= {"tone200", "tone400", "tone800"}
    short = tmp_path / "sounds" / "tone200" / "0.wav"
    soundfile.write(short, np.zeros(100), 8_000)
    with pytest.raises(ValueError, match=r"16,000 samples a second; .*0\.wav has 8,000"):
        example.Sounds([short], ["tone200"])[0]
    short.write_bytes(b"no sound")
    with pytest.raises(ValueError, match=r"0\.wav cannot be read as a sound"):
        example.Sounds([short], ["tone200"])[0]


@pytest.mark.slow
def test_monais_trainer_trains_a_supernet(tmp_path):
    pytest.importorskip("monai", reason="the example is of MONAI")
    words = [sys.executable, EXAMPLES / "monai_training.py", tmp_path / "run", "--quick"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    share, dice = re.search(r"^([\d.]+) of the multiply-adds, Dice ([\d.]+) %$", done.stdout, re.MULTILINE).groups()
    assert 0 < float(share) <= 0.5
    assert 0 <= float(dice) <= 100
    assert torch.load(tmp_path / "run" / "network.pt", weights_only=True)


@pytest.mark.slow
def test_a_yolo_is_narrowed_by_its_own_loss(tmp_path):
    pytest.importorskip("ultralytics", reason="the example is of Ultralytics' package, whose licence is the AGPL-3.0")
    for part, count in (("train", 16), ("val", 8)):
        for kind in ("images", "labels"):
            (tmp_path / kind / part).mkdir(parents=True)
        for number in range(count):
            pixels = np.random.default_rng(number).integers(0, 90, (64, 64, 3), dtype=np.uint8)
            pixels[16:40, 20:50, 0] += 150
            Image.fromarray(pixels).save(tmp_path / "images" / part / f"{number}.jpg")
            boxes = "1 0.547 0.4375 0.469 0.375\n" if number % 4 else ""
            (tmp_path / "labels" / part / f"{number}.txt").write_text(boxes)
    page = f"path: {tmp_path}\ntrain: images/train\nval: images/val\nnames: {{0: cat, 1: horse}}\n"
    (tmp_path / "data.yaml").write_text(page)
    script = "import runpy, torchvision_stand_ins as here; here.install(); "
    script += f"runpy.run_path({str(EXAMPLES / 'yolo_loop.py')!r}, run_name='__main__')"
    words = [sys.executable, "-c", script, tmp_path / "data.yaml", tmp_path / "run", "--quick"]
    offline = {"YOLO_CONFIG_DIR": str(tmp_path), "YOLO_OFFLINE": "true", "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join([str(pages.ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **offline, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    groups, ratio = re.search(r"(\d+) width groups, ([\d.]+)x multiply-adds", done.stdout).groups()
    assert int(groups) == 48
    assert float(ratio) <= 0.5
    assert (tmp_path / "run" / "network.pt").exists()


RESUMED = """
import lightning, torch, bcnet
import lightning_loop as example
from torch.utils.data import DataLoader

place = {"default_root_dir": ROOT, "logger": False, "accelerator": "cpu", "enable_progress_bar": False}

def trained(epochs, checkpoint=None):
    torch.manual_seed(0)
    model = example.Net(8)
    space = bcnet.WidthSpace.trace(model, torch.zeros(2, 1, 8, 8))
    module = example.SupernetModule(model, space)
    loader = DataLoader(example.digits()[1], 100)
    trainer = lightning.Trainer(max_epochs=epochs, **place)
    trainer.fit(module, loader, ckpt_path=checkpoint)
    return module.steps.records.widths.tolist(), trainer

whole, _ = trained(3)
first, trainer = trained(1)
trainer.save_checkpoint(ROOT + "/first.ckpt")
again, _ = trained(3, ROOT + "/first.ckpt")
assert len(first) == len(whole) / 3 and again == whole
print("the draws are the same")
"""


START = f"""
import sys
sys.path[:0] = {[str(EXAMPLES), str(pages.ROOT / "tests")]!r}
import torchvision_stand_ins
torchvision_stand_ins.install()
"""


def in_a_process(text, **variables):
    """What Python code prints where the examples can be imported, in a process that warnings do not end."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    words = [sys.executable, "-c", START + text]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def alone(script, *words, **variables):
    """What a script prints in its quick form."""
    argv = [str(script), *map(str, words), "--quick"]
    return in_a_process(
        f"import runpy; sys.argv = {argv!r}; runpy.run_path(sys.argv[0], run_name='__main__')", **variables
    )


@pytest.mark.slow
def test_a_supernet_in_lightning_and_one_that_goes_on(tmp_path):
    pytest.importorskip("lightning")
    printed = alone(LIGHTNING, tmp_path)
    assert "x multiply-adds" in printed
    assert "test accuracy" in printed
    assert "the draws are the same" in in_a_process(f"ROOT = {str(tmp_path)!r}\n{RESUMED}")


@pytest.mark.slow
def test_a_hugging_face_network_trained_by_its_trainer_and_loaded_elsewhere(tmp_path):
    pytest.importorskip("transformers")
    printed = alone(HUGGING_FACE, tmp_path)
    assert "ResNetForImageClassification of widths" in printed
    assert "loaded elsewhere the same: True" in printed
    document = json.loads((tmp_path / "architecture.json").read_text())
    assert [g["width"] for g in document["groups"]] != [g["max_width"] for g in document["groups"]]
    stored = load_file(tmp_path / "model.safetensors")
    stem = stored["resnet.embedder.embedder.convolution.weight"]
    assert stem.shape == (document["groups"][0]["width"], 1, 7, 7)


@pytest.mark.slow
def test_a_narrow_network_in_timms_training(images, tmp_path):
    timm = pytest.importorskip("timm")
    model = timm.create_model("test_resnet", num_classes=3)
    space = bcnet.WidthSpace.trace(model, torch.zeros(2, 3, 32, 32))
    widths = [group.choices[len(group.choices) // 2] for group in space.groups]
    architecture = tmp_path / "architecture.json"
    architecture.write_text(json.dumps(bcnet.supernet.describe(model, space, widths)))
    printed = alone(TIMM_TRAINING, architecture, images / "train", "--image-size", 32, MODEL="test_resnet")
    assert "epoch 1 of 1: loss" in printed
    assert f"of {space.cost(widths).params:,} parameters" in printed


@pytest.mark.slow
def test_a_study_on_workers_finds_what_one_process_finds_and_goes_on(tmp_path):
    pytest.importorskip("distributed", reason="the example is of Dask's package distributed")
    script = str(EXAMPLES / "dask_cluster.py")

    def spread(folder):
        words = [sys.executable, script, str(folder), "--quick"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    with spread(tmp_path / "stopped") as stopped:
        for line in stopped.stdout:
            if line.startswith("5 of 12"):
                break
        stopped.kill()
    with spread(tmp_path / "stopped") as again:
        told, complaint = again.communicate(timeout=400)
    assert again.returncode == 0, complaint[-3000:]
    scored = re.findall(r"^(\d+) of 12", told, re.MULTILINE)
    assert scored[-1] == "12"
    assert int(scored[0]) >= 6, "what was scored before the end is kept"
    told_alone = in_a_process("""
import dask_cluster as example, bcnet
original = example.train(example.network(), 4)
space = bcnet.trace(original, example.digits()[0][:2])
with bcnet.Study(space, example.BUDGET, searcher=bcnet.ModelBased(12, reach=1.4)) as study:
    best = study.optimize(lambda widths: example.score(original.state_dict(), widths, 1))
print(f"best of 12: {best.widths}")
print(f"score {best.score:.4f}")
""")
    best, score = told_alone.splitlines()
    last = told.strip().splitlines()[-1]
    assert last.startswith(best)
    assert last.endswith(score)
