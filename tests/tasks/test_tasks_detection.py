"""Detection: the loss as written out point by point, boxes found where they were put, what is refused, whole runs."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_job import Recorder, StoppedError, tiny_search
from torch import nn
from torch.utils.data import DataLoader

import bcnet
from bcnet.errors import DataError, ModelError, RecipeError
from bcnet.tasks import Detection, padded_boxes
from bcnet.tasks.coco_ap import Found, Truth, average_precision, iou
from bcnet.tasks.detection import radius_of

SIDE, POINTS = 32, 8
TASK = Detection(classes=3, height=SIDE, width=SIDE, most=20)


def boxes(seed, images=4, most=5, classes=3):
    """Targets whose boxes have their middles at points that are no neighbours."""
    rng = np.random.default_rng(seed)
    corners, labels = torch.zeros(images, most, 4), torch.full((images, most), -1)
    for image in range(images):
        places = rng.permutation(16)[: rng.integers(0, most + 1)]
        for number, place in enumerate(places):
            middle = (np.array([place % 4, place // 4]) * 2 + rng.random(2)) * SIDE / POINTS
            half = rng.uniform(0.5, 10, 2)
            low, high = np.maximum(middle - half, 0), np.minimum(middle + half, SIDE)
            half = np.minimum(middle - low, high - middle).clip(0.25)
            corners[image, number] = torch.from_numpy(np.concatenate([middle - half, middle + half]))
            labels[image, number] = int(rng.integers(classes))
    return TASK.check_targets({"boxes": corners, "labels": labels}, "it")


def perfect(targets, classes=3):
    """The map of a network that knows."""
    images = len(targets["labels"])
    found = torch.zeros(images, classes + 4, POINTS, POINTS)
    found[:, :classes] = -9
    for image in range(images):
        for box, label in zip(targets["boxes"][image] * POINTS / SIDE, targets["labels"][image].tolist(), strict=True):
            if label >= 0:
                x, y = (box[:2] + box[2:]).tolist()
                column, row = int(x / 2), int(y / 2)
                found[image, label, row, column] = 9
                size = (box[2:] - box[:2]).tolist()
                found[image, classes:, row, column] = torch.tensor([*size, x / 2 - column, y / 2 - row])
    return found


@given(st.integers(0, 10**6))
def test_boxes_are_found_where_they_are(seed):
    targets = boxes(seed)
    found, labels, scores = TASK.detections(perfect(targets))
    for image, wanted in enumerate(targets["labels"]):
        there = wanted >= 0
        sure = scores[image] > 0.5
        assert int(sure.sum()) == int(there.sum())
        parts = ((wanted, targets["boxes"][image], there), (labels[image], found[image], sure))
        pairs = [
            sorted(
                (int(label), *np.round(box.tolist(), 2)) for label, box in zip(kinds[some], corners[some], strict=True)
            )
            for kinds, corners, some in parts
        ]
        np.testing.assert_allclose(*pairs, atol=0.02)


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_the_measured_precision_is_cocos_whatever_the_batches(seed):
    targets = boxes(seed, images=7)
    outputs = perfect(targets) + torch.randn(7, 7, POINTS, POINTS, generator=torch.Generator().manual_seed(seed)) * 3
    found = TASK.detections(outputs)
    truths = [
        Truth(box[label >= 0].numpy(), label[label >= 0].numpy(), np.zeros(int((label >= 0).sum()), dtype=bool))
        for box, label in zip(targets["boxes"].double(), targets["labels"], strict=True)
    ]
    guesses = [Found(b.double().numpy(), k.numpy(), s.double().numpy()) for b, k, s in zip(*found, strict=True)]
    parts = [TASK.figures(outputs[i], {k: v[i] for k, v in targets.items()}) for i in (slice(3), slice(3, 7))]
    values, errors = TASK.summarize({key: torch.cat([part[key] for part in parts]) for key in ("ap", "ap50")})
    expected = average_precision(truths, guesses)
    if math.isnan(expected.ap):
        assert torch.isnan(values["ap"])
        return
    assert float(values["ap"]) == pytest.approx(expected.ap)
    assert float(values["ap50"]) == pytest.approx(expected.ap50)
    assert all(0 <= float(error) < 100 for error in errors.values())


@pytest.mark.slow
def test_the_error_is_that_of_other_images():
    values, errors = [], []
    for seed in range(60):
        targets = boxes(seed, images=60)
        noise = torch.randn(60, 7, POINTS, POINTS, generator=torch.Generator().manual_seed(seed)) * 4
        value, error = TASK.summarize(TASK.figures(perfect(targets) + noise, targets))
        values.append(float(value["ap50"]))
        errors.append(float(error["ap50"]))
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.4)


def written_out(outputs, box, label):
    """The loss of one image, as the paper has it, point by point; in float64."""
    chances = outputs[:3].double().sigmoid().clamp(1e-4, 1 - 1e-4)
    wanted = torch.zeros(3, POINTS, POINTS, dtype=torch.float64)
    loss, count = 0.0, 0
    for corners, kind in zip((box * POINTS / SIDE).double().tolist(), label.tolist(), strict=True):
        if kind < 0:
            continue
        count += 1
        x1, y1, x2, y2 = corners
        middle = (x1 + x2) / 2, (y1 + y2) / 2
        column, row = int(middle[0]), int(middle[1])
        radius = math.floor(float(radius_of(torch.tensor(x2 - x1), torch.tensor(y2 - y1))))
        deviation = (2 * radius + 1) / 6
        for i in range(max(0, row - radius), min(POINTS, row + radius + 1)):
            for j in range(max(0, column - radius), min(POINTS, column + radius + 1)):
                bell = math.exp(-((i - row) ** 2 + (j - column) ** 2) / (2 * deviation**2))
                wanted[kind, i, j] = max(wanted[kind, i, j], bell)
        size, offset = outputs[3:5, row, column].double(), outputs[5:, row, column].double()
        loss += 0.1 * float((size - torch.tensor([x2 - x1, y2 - y1])).abs().sum())
        loss += float((offset - torch.tensor([middle[0] - column, middle[1] - row])).abs().sum())
    for p, y in zip(chances.flatten().tolist(), wanted.flatten().tolist(), strict=True):
        loss -= (1 - p) ** 2 * math.log(p) if y == 1 else (1 - y) ** 4 * p**2 * math.log(1 - p)
    return loss / max(count, 1)


@given(st.integers(0, 10**6))
def test_the_loss_is_the_papers(seed):
    targets = boxes(seed)
    outputs = torch.randn(4, 7, POINTS, POINTS, generator=torch.Generator().manual_seed(seed))
    expected = [written_out(*parts) for parts in zip(outputs, targets["boxes"], targets["labels"], strict=True)]
    torch.testing.assert_close(-TASK.score(outputs, targets), torch.tensor(expected), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(TASK.loss(outputs, targets), torch.tensor(expected).mean(), rtol=1e-4, atol=1e-4)


def test_images_without_boxes_train_too_and_gradients_are_finite():
    targets = TASK.check_targets({"boxes": torch.zeros(2, 3, 4), "labels": torch.full((2, 3), -1)}, "it")
    outputs = torch.zeros(2, 7, POINTS, POINTS, requires_grad=True)
    TASK.loss(outputs, targets).backward()
    assert outputs.grad.isfinite().all()
    assert (outputs.grad[:, :3] > 0).all()


@given(st.floats(1, 40), st.floats(1, 40))
def test_corners_as_far_off_as_the_radius_leave_an_overlap_of_seven_tenths(width, height):
    radius = float(radius_of(torch.tensor(width, dtype=torch.float64), torch.tensor(height, dtype=torch.float64)))
    box, step = np.array([[0.0, 0.0, width, height]]), radius * np.array([1, 1, 1, 1])
    moved = [box + step, box + step * [1, 1, -1, -1], box + step * [-1, -1, 1, 1]]
    overlaps = [float(iou(box, other, np.array([False]))[0, 0]) for other in moved]
    assert min(overlaps) == pytest.approx(0.7)


def test_padded_boxes_are_batches_that_fit():
    items = [
        (torch.zeros(1, SIDE, SIDE), {"boxes": torch.tensor([[1.0, 2.0, 3.0, 4.0]]), "labels": torch.tensor([2])}),
        (torch.zeros(1, SIDE, SIDE), {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}),
    ]
    images, targets = padded_boxes(3)(items)
    assert images.shape == (2, 1, SIDE, SIDE)
    assert targets["labels"].tolist() == [[2, -1, -1], [-1, -1, -1]]
    assert targets["boxes"][0, 0].tolist() == [1, 2, 3, 4]
    assert torch.equal(TASK.check_targets(targets, "it")["boxes"], targets["boxes"])
    with pytest.raises(DataError, match=r"at most 0 boxes .* got 1 boxes and labels \(1,\) in number 0"):
        padded_boxes(0)(items)


ONE = torch.tensor([[[1.0, 1.0, 5.0, 5.0]]])


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.zeros(2, 3), r'a dict of "boxes".*got \(2, 3\): bcnet.tasks.padded_boxes'),
        ({"boxes": ONE}, "got a dict of boxes"),
        ({"boxes": ONE, "labels": torch.zeros(1, 2).long()}, r"got \(1, 1, 4\) and torch.int64 \(1, 2\)"),
        ({"boxes": ONE, "labels": torch.zeros(1, 1)}, "torch.float32"),
        ({"boxes": ONE, "labels": torch.tensor([[3]])}, "classes from 0 to 2, .* of class 3 in number 0 of a batch"),
        ({"boxes": ONE * torch.nan, "labels": torch.tensor([[0]])}, "corners that are finite"),
        ({"boxes": ONE * torch.tensor([1, 1, 0.2, 1]), "labels": torch.tensor([[0]])}, "x1 below x2"),
        ({"boxes": ONE * 7, "labels": torch.tensor([[0]])}, "within images of 32 x 32 pixels; got .7.0, 7.0, 35.0"),
    ],
)
def test_what_is_no_box_is_told(targets, message):
    with pytest.raises(DataError, match=message):
        TASK.check_targets(targets, "it")


def test_padding_may_hold_anything():
    found = TASK.check_targets({"boxes": ONE * torch.nan, "labels": torch.tensor([[-1]])}, "it")
    assert found["boxes"].tolist() == [[[0, 0, 0, 0]]]


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (torch.zeros(2, 6, 8, 8), r"map \(batch, 7, height, width\).*got \(2, 6, 8, 8\)"),
        ([torch.zeros(2, 7, 8, 8)], "got list"),
        (torch.zeros(2, 7, 64, 64), r"no more points than the images have pixels, 32 x 32; got \(64, 64\)"),
    ],
)
def test_what_is_no_map_is_told(outputs, message):
    with pytest.raises(ModelError, match=message):
        TASK.check(outputs, 0)


def test_settings_out_of_range_are_refused():
    with pytest.raises(RecipeError, match="at least 1; got"):
        Detection(0, 32, 32)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, stride=2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 12, 3, padding=1, stride=2),
            nn.BatchNorm2d(12),
            nn.ReLU(),
        )
        self.last = nn.Conv2d(12, 7, 1)
        nn.init.constant_(self.last.bias[:3], -2.2)

    def forward(self, x):
        return self.last(self.layers(x))


def loaders():
    """Bright squares on noise, of a class for each of three sizes; some images have none."""
    parts = []
    for part, count in enumerate((64, 32, 32)):
        generator, items = torch.Generator().manual_seed(part), []
        for number in range(count):
            image, kind = torch.randn(1, SIDE, SIDE, generator=generator) * 0.2, number % 4
            side = 4 * (kind + 2)
            left, top = torch.randint(SIDE - side, (2,), generator=generator).tolist()
            image[:, top : top + side, left : left + side] += float(kind < 3)
            square = torch.tensor([[left, top, left + side, top + side]][: int(kind < 3)]).reshape(-1, 4)
            items.append((image, {"boxes": square, "labels": torch.tensor([kind][: int(kind < 3)], dtype=torch.int64)}))
        parts.append(DataLoader(items, 16, shuffle=part == 0, collate_fn=padded_boxes(2)))
    return bcnet.Loaders(*parts, name="squares")


@pytest.mark.slow
def test_a_killed_run_ends_like_a_whole_one_and_says_what_it_measured(tmp_path):
    whole = tiny_search(tmp_path / "whole", model=Detector, data=loaders(), task=TASK, report=True)
    with pytest.raises(StoppedError):
        tiny_search(tmp_path / "killed", model=Detector, data=loaders(), task=TASK, reporter=Recorder(("original", 3)))
    tiny_search(tmp_path / "killed", model=Detector, data=loaders(), task=TASK)
    results = [json.loads((tmp_path / name / "result.json").read_text())["networks"] for name in ("whole", "killed")]
    assert results[0] == results[1]
    found = whole.result.networks["searched"].test
    assert set(found) == {"ap", "ap50"}
    page = (tmp_path / "whole" / "report.html").read_text()
    assert "AP (%)" in page
    assert "top-1" not in page.lower()
    pytest.importorskip("onnxruntime")
    assert bcnet.export_run(tmp_path / "whole", Detector).difference < 1e-4
    assert "what the task detection takes" in (tmp_path / "whole" / "model_card.md").read_text()
