"""What the built-in tasks measure is what torchmetrics computes of the same outputs.

It is no dependency: importing it imports torchvision, and where that does not match torch, bcnet would not start.
"""

import pytest
import torch
from torch import nn

from bcnet.tasks import Classification, DenseRegression, Detection, MultiLabel, Regression, Segmentation

torchmetrics = pytest.importorskip("torchmetrics", reason="the oracle of this module")
of_classes = pytest.importorskip("torchmetrics.functional.classification")
of_images = pytest.importorskip("torchmetrics.functional.image")
COUNT = 40


class Fixed(nn.Module):
    """Gives what it is shown."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x


def measured(task, outputs, targets):
    """By a test in batches of 7, the last one smaller."""
    parts = range(0, COUNT, 7)
    if isinstance(targets, dict):
        batches = [(outputs[n : n + 7], {key: t[n : n + 7] for key, t in targets.items()}) for n in parts]
    else:
        batches = [(outputs[n : n + 7], targets[n : n + 7]) for n in parts]
    return task.test(Fixed(), batches).figures


@pytest.fixture(params=range(3))
def generator(request):
    return torch.Generator().manual_seed(request.param)


def test_classification(generator):
    logits = torch.randn(COUNT, 9, generator=generator)
    labels = torch.randint(9, (COUNT,), generator=generator)
    found = measured(Classification(), logits, labels)
    for key, count in (("top1", 1), ("top5", 5)):
        theirs = of_classes.multiclass_accuracy(logits, labels, num_classes=9, top_k=count, average="micro")
        assert found[key] == pytest.approx(100 * float(theirs), abs=1e-4)


def test_several_labels(generator):
    logits = torch.randn(COUNT, 6, generator=generator)
    labels = torch.randint(2, (COUNT, 6), generator=generator)
    found = measured(MultiLabel(6), logits, labels.float())
    f1 = of_classes.multilabel_f1_score(logits, labels, num_labels=6, average="macro")
    right = of_classes.multilabel_accuracy(logits, labels, num_labels=6, average="micro")
    assert found["f1"] == pytest.approx(100 * float(f1), abs=1e-4)
    assert found["labels"] == pytest.approx(100 * float(right), abs=1e-4)


def test_segmentation_leaves_out_what_is_to_be_ignored(generator):
    logits = torch.randn(COUNT, 5, 6, 7, generator=generator)
    masks = torch.randint(5, (COUNT, 6, 7), generator=generator)
    masks[torch.rand(masks.shape, generator=generator) < 0.2] = 255
    found = measured(Segmentation(5), logits, masks)
    asked = {"num_classes": 5, "ignore_index": 255}
    miou = of_classes.multiclass_jaccard_index(logits, masks, average="macro", **asked)
    right = of_classes.multiclass_accuracy(logits, masks, average="micro", **asked)
    assert found["miou"] == pytest.approx(100 * float(miou), abs=1e-4)
    assert found["pixels"] == pytest.approx(100 * float(right), abs=1e-4)


def test_numbers(generator):
    numbers, wanted = torch.randn(2, COUNT, 3, generator=generator)
    found = measured(Regression(3), numbers, wanted)
    assert found["mae"] == pytest.approx(float(torchmetrics.functional.mean_absolute_error(numbers, wanted)), rel=1e-5)
    assert found["mse"] == pytest.approx(float(torchmetrics.functional.mean_squared_error(numbers, wanted)), rel=1e-5)


def test_images(generator):
    images, wanted = torch.rand(2, COUNT, 3, 6, 7, generator=generator)
    found = measured(DenseRegression(), images, wanted)
    psnr = of_images.peak_signal_noise_ratio(images, wanted, data_range=1.0, dim=(1, 2, 3))
    assert found["psnr"] == pytest.approx(float(psnr), rel=1e-5)
    assert found["mae"] == pytest.approx(float(torchmetrics.functional.mean_absolute_error(images, wanted)), rel=1e-5)


def test_boxes(generator):
    pytest.importorskip("pycocotools", reason="what torchmetrics matches boxes by")
    detection = pytest.importorskip("torchmetrics.detection")
    task = Detection(classes=3, height=64, width=64)
    outputs = torch.randn(COUNT, 7, 8, 8, generator=generator)
    outputs[:, 3:5] = outputs[:, 3:5].abs() * 3
    boxes, labels, _ = task.detections(outputs)
    keep = 5  # of what is found a part is right, moved by a little
    wanted = (boxes[:, :keep] + torch.rand(COUNT, keep, 4, generator=generator)).clamp(0, 64)
    there = (wanted[..., 2:] > wanted[..., :2] + 1).all(dim=-1)
    kinds = labels[:, :keep].where(there, -1)
    targets = task.check_targets({"boxes": wanted, "labels": kinds}, "the test images")
    found = measured(task, outputs, targets)
    theirs = detection.MeanAveragePrecision(max_detection_thresholds=[1, 10, 100])
    for n in range(COUNT):
        box, label, score = (part[0] for part in task.detections(outputs[n : n + 1]))
        there = targets["labels"][n] >= 0
        theirs.update(
            [{"boxes": box[score > 0], "labels": label[score > 0], "scores": score[score > 0]}],
            [{"boxes": targets["boxes"][n][there], "labels": targets["labels"][n][there]}],
        )
    values = theirs.compute()
    assert 0 < found["ap"] < 100
    # It overlaps boxes in float32, so that one at a threshold may fall to its other side.
    assert found["ap"] == pytest.approx(100 * float(values["map"]), abs=0.02)
    assert found["ap50"] == pytest.approx(100 * float(values["map_50"]), abs=0.02)
