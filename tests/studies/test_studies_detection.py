"""The detection study reads COCO's format and counts average precision as COCO does."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import bcnet
from bcnet.errors import DataError, ModelError, WidthError
from bcnet.tasks import coco_ap
from studies.detection import __main__ as detection
from studies.detection import coco


def truth(*boxes: tuple[float, ...], labels: tuple[int, ...] = (), crowd: tuple[bool, ...] = ()) -> object:
    count = len(boxes)
    return coco_ap.Truth(
        np.array(boxes, dtype=float).reshape(-1, 4),
        np.array(labels or [1] * count, dtype=int),
        np.array(crowd or [False] * count, dtype=bool),
    )


def found(*boxes: tuple[float, ...], scores: tuple[float, ...] = (), labels: tuple[int, ...] = ()) -> object:
    count = len(boxes)
    return coco_ap.Found(
        np.array(boxes, dtype=float).reshape(-1, 4),
        np.array(labels or [1] * count, dtype=int),
        np.array(scores or np.linspace(1, 0.5, count), dtype=float),
    )


A, B, C = (0, 0, 10, 10), (20, 20, 40, 40), (50, 0, 60, 10)


@pytest.mark.parametrize(
    ("truths", "detections", "ap", "ap50"),
    [
        ([truth(A, B)], [found(A, B)], 100, 100),
        ([truth(A, B)], [found()], 0, 0),
        # An overlap of 0.8 counts at seven of the ten thresholds.
        ([truth(A)], [found((0, 0, 10, 8))], 70, 100),
        # One of two objects: precision 1 up to recall 0.5, 51 of 101 recalls.
        ([truth(A, B)], [found(A)], 100 * 51 / 101, 100 * 51 / 101),
        # A false alarm of the best score halves the precision at recall 1.
        ([truth(A)], [found(C, A)], 50, 50),
        ([truth(A)], [found(A, C)], 100, 100),
        # A second detection of one object is false; it comes before the other object is found.
        ([truth(A, B)], [found(A, A, B)], 100 * (51 + 50 * 2 / 3) / 101, 100 * (51 + 50 * 2 / 3) / 101),
        # Scores are ranked over all images.
        ([truth(A), truth(B)], [found(C, A, scores=(0.2, 0.9)), found(B, scores=(0.8,))], 100, 100),
        # Categories count alike, and those without objects do not count.
        ([truth(A, B, labels=(1, 2))], [found(A, labels=(1,))], 50, 50),
        ([truth(A)], [found(A, B, labels=(1, 3))], 100, 100),
        # What lies in a crowd is no false alarm.
        ([truth(A, (0, 0, 60, 60), crowd=(False, True))], [found(B, A)], 100, 100),
    ],
)
def test_average_precision_of_known_cases(truths: list, detections: list, ap: float, ap50: float) -> None:
    assert coco_ap.average_precision(truths, detections) == pytest.approx((ap, ap50))


def test_average_precision_without_objects_is_not_a_number() -> None:
    assert np.isnan(coco_ap.average_precision([truth()], [found(A)])).all()


def random_split(tmp_path: Path) -> tuple[object, list[object]]:
    """A tiny split and noisy detections of its objects, with false ones among them."""
    split = coco.Split.read(coco.tiny_folder(tmp_path / "coco", images=20), "val2017")
    rng = np.random.default_rng(0)
    detections = []
    for image in split.images:
        known = split.truth(image, crowds=True)
        boxes = np.concatenate([known.boxes + rng.normal(scale=3, size=known.boxes.shape), [[5, 5, 30, 30]]])
        labels = np.append(known.labels, rng.integers(1, 3))
        detections.append(coco_ap.Found(boxes, labels, rng.random(len(labels))))
    return split, detections


def test_average_precision_equals_pycocotools(tmp_path: Path) -> None:
    if importlib.util.find_spec("pycocotools") is None:
        pytest.skip("pycocotools is not installed")
    split, detections = random_split(tmp_path)
    truths = [split.truth(image, crowds=True) for image in split.images]
    assert coco.evaluate(split, detections) == pytest.approx(coco_ap.average_precision(truths, detections))


def test_targets_follow_the_annotations_and_the_flips(tmp_path: Path) -> None:
    split = coco.Split.read(coco.tiny_folder(tmp_path / "coco"), "train2017")
    assert split.categories == (2, 7)
    plain, flipped = coco.Images(split, training=False), coco.Images(split, training=True, seed=1)
    assert len(plain) == 12
    assert len(flipped) == sum(len(truth.boxes) > 0 for truth in plain.truths)
    for index, place in enumerate(flipped.places):
        (image, target), (mirrored, moved) = plain[place], flipped[index]
        assert torch.equal(target["labels"], moved["labels"])
        width = image.shape[2]
        if not torch.equal(image, mirrored):
            assert torch.equal(image.flip(2), mirrored)
            torch.testing.assert_close(moved["boxes"][:, [0, 2]], width - target["boxes"][:, [2, 0]])
        for x1, y1, x2, y2 in moved["boxes"].int().tolist():
            colour = mirrored[:, (y1 + y2) // 2, (x1 + x2) // 2]
            assert colour.min() < 0.3  # a rectangle lies where its box does, not the white ground


def test_widths_come_from_a_result_or_a_ratio(tmp_path: Path) -> None:
    space = bcnet.WidthSpace.trace(bcnet.models.resnet20(), torch.zeros(2, 3, 32, 32))
    file = tmp_path / "result.json"
    half = space.scaled(0.5)
    file.write_text(json.dumps({"widths": {g.name: w for g, w in zip(space.groups, half, strict=True)}}))
    assert detection.chosen_widths(space, str(file)) == half
    assert detection.chosen_widths(space, "original") == space.full
    assert detection.chosen_widths(space, "uniform:0.5") == space.uniform(macs=0.5)
    with pytest.raises(WidthError, match="a JSON file; got 'half'"):
        detection.chosen_widths(space, "half")
    file.write_text(json.dumps({"stem": 3}))
    with pytest.raises(WidthError, match="must give a width to each of the groups"):
        detection.chosen_widths(space, str(file))


def test_mistakes_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"instances_train2017\.json is not there"):
        coco.Split.read(tmp_path, "train2017")
    with pytest.raises(ModelError, match="one of retinanet, faster_rcnn; got 'yolo'"):
        detection.Settings(tmp_path, detector="yolo")


def test_the_rate_warms_up_and_drops_twice() -> None:
    settings = detection.Settings(Path("coco"), detector="faster_rcnn", batch=8)
    steps = [(0, 0), (0, 250), (1, 500), (8, 4000), (11, 5500)]
    rates = [detection.rate_at(settings, *step) for step in steps]
    assert rates == pytest.approx([0.00001, 0.005005, 0.01, 0.001, 0.0001])


@pytest.mark.studies
def test_both_detectors_train_evaluate_and_resume(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchvision")
    detection.quick()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["retinanet", "faster_rcnn"]
