"""torchvision's one-stage detectors, searched by their parts: losses and boxes are the detector's own, whole runs."""

import copy

import pytest
import torch
from properties import check_network, check_path_equals_built
from tiny_job import Recorder, StoppedError, tiny_search
from torch import nn
from torch.utils.data import DataLoader

import bcnet
from bcnet.errors import ModelError, RunError
from bcnet.models import detector_with, one_stage
from bcnet.models.detection import retinanet
from bcnet.tasks import OneStageDetection, padded_boxes

pytest.importorskip("torchvision")

SIDE = 32


class Backbone(nn.Module):
    """Maps of an eighth and a sixteenth of the side."""

    def __init__(self, out_channels: int = 8) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 4, 4), nn.BatchNorm2d(12), nn.ReLU())
        self.first = nn.Sequential(nn.Conv2d(12, out_channels, 3, 2, 1), nn.BatchNorm2d(out_channels), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(out_channels, out_channels, 3, 2, 1), nn.ReLU())

    def forward(self, x):
        first = self.first(self.stem(x))
        return {"0": first, "1": self.second(first)}


def detector_of(name):
    from torchvision.models import detection
    from torchvision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator

    torch.manual_seed(0)
    if name == "ssd":
        boxes = DefaultBoxGenerator([[2], [2]], scales=[0.2, 0.5, 0.8], steps=[8, 16])
        head = detection.ssd.SSDHead([8, 8], boxes.num_anchors_per_location(), 3)
        return detection.ssd.SSD(Backbone(), boxes, (SIDE, SIDE), 3, head=head, detections_per_img=12)
    sizes = ((8,), (16,))
    if name == "fcos":
        anchors = AnchorGenerator(sizes, ((1.0,),) * 2)
        backbone = Backbone(32)  # its head normalises in 32 groups
        return detection.FCOS(backbone, 3, anchor_generator=anchors, detections_per_img=12)
    anchors = AnchorGenerator(sizes, ((0.5, 1.0),) * 2)
    return detection.RetinaNet(Backbone(), 3, anchor_generator=anchors, detections_per_img=12, topk_candidates=30)


KINDS = ("retinanet", "fcos", "ssd")


def task_of(detector):
    return OneStageDetection(classes=3, height=SIDE, width=SIDE, most=12, detector=detector)


def batch(count=3):
    """Images with two boxes, one and none."""
    generator = torch.Generator().manual_seed(1)
    boxes = torch.tensor([[[4.0, 4, 20, 18], [14, 12, 30, 30]], [[8, 2, 24, 20], [0, 0, 0, 0]], [[0, 0, 0, 0]] * 2])
    labels = torch.tensor([[1, 2], [2, -1], [-1, -1]])
    return torch.rand(count, 3, SIDE, SIDE, generator=generator), {"boxes": boxes[:count], "labels": labels[:count]}


def in_list(targets):
    """As torchvision takes them."""
    pairs = zip(targets["boxes"], targets["labels"], strict=True)
    return [{"boxes": boxes[labels >= 0], "labels": labels[labels >= 0]} for boxes, labels in pairs]


def unresized(detector, images, targets=None):
    """The detector itself, on images that are of the right size already."""
    whole = copy.deepcopy(detector)
    whole.transform.min_size = (SIDE,)
    whole.transform.max_size = SIDE
    whole.transform.fixed_size = None
    whole.transform.size_divisible = 1
    return whole.train(targets is not None)(list(images), targets)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_detectors(kind):
    detector = detector_of(kind)
    images, targets = batch()
    network = one_stage(detector).train()
    expected = unresized(detector, images, in_list(targets))
    loss = task_of(detector).loss(network(images), targets)
    assert loss.item() == pytest.approx(sum(expected.values()).item(), rel=1e-5)
    loss.backward()
    assert all(p.grad is not None for p in network.parameters())
    assert all(p.grad is None for p in detector.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_of_one_image_alone(kind):
    detector = detector_of(kind)
    images, targets = batch()
    task, network = task_of(detector), one_stage(detector).eval()
    with torch.no_grad():
        scores = task.score(network(images), targets)
        single = [(network(images[n : n + 1]), {k: v[n : n + 1] for k, v in targets.items()}) for n in range(3)]
        alone = [-task.loss(*pair).item() for pair in single]
    assert scores.tolist() == pytest.approx(alone, rel=1e-4)
    assert len(set(scores.tolist())) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_boxes_are_the_detectors_best_first(kind):
    detector = detector_of(kind).eval()
    detector.score_thresh = 0.0
    images, _ = batch()
    with torch.no_grad():
        expected = unresized(detector, images)
        boxes, labels, scores = task_of(detector).detections(one_stage(detector).eval()(images))
    for image, wanted in enumerate(expected):
        count = len(wanted["scores"])
        assert count > 0
        torch.testing.assert_close(scores[image, :count], wanted["scores"].sort(descending=True).values)
        assert (scores[image, count:] == 0).all()
        order = wanted["scores"].argsort(descending=True)
        torch.testing.assert_close(boxes[image, :count], wanted["boxes"][order], rtol=1e-4, atol=1e-3)
        assert labels[image, :count].tolist() == wanted["labels"][order].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_narrowed_parts_make_a_detector_of_the_same_class(kind):
    detector = detector_of(kind).eval()
    network = one_stage(detector)
    space = bcnet.WidthSpace.trace(network, torch.zeros(2, 3, SIDE, SIDE))
    assert len(space.groups) > 2
    widths = tuple(max(group.unit, group.max_width // 2 // group.unit * group.unit) for group in space.groups)
    narrow = bcnet.supernet.build(network, space, widths).eval()
    whole = detector_with(detector, narrow)
    assert type(whole) is type(detector)
    assert sum(p.numel() for p in whole.parameters()) == space.cost(widths).params
    images, _ = batch()
    with torch.no_grad():
        found, labels, scores = task_of(whole).detections(narrow(images))
        for image, wanted in enumerate(unresized(whole.eval(), images)):
            count = len(wanted["scores"])
            torch.testing.assert_close(scores[image, :count], wanted["scores"].sort(descending=True).values)
    assert found.shape == (3, 12, 4)
    assert labels.shape == (3, 12)


@pytest.mark.parametrize("kind", KINDS)
def test_paths_of_the_parts_equal_built_ones(kind):
    check_network(one_stage(detector_of(kind)), torch.rand(2, 3, SIDE, SIDE))


@pytest.mark.slow
def test_a_detector_on_a_pyramid_with_frozen_norms_is_searched_by_its_parts():
    from torchvision.models import resnet18

    body = bcnet.supernet.recalibrate(resnet18(), [torch.rand(4, 3, 64, 64)])
    network = one_stage(retinanet(body, 3))
    space = bcnet.WidthSpace.trace(network, torch.zeros(2, 3, 64, 64))
    widths = space.uniform(bcnet.Budget(macs=0.3))
    check_path_equals_built(network, space, torch.rand(2, 3, 64, 64), widths)


def loaders():
    """Bright squares, small ones of class 1 and large ones of class 2."""

    def items(count, seed):
        generator = torch.Generator().manual_seed(seed)
        for number in range(count):
            kind = 1 + number % 2
            side = 6 + 8 * (kind - 1)
            image = torch.rand(3, SIDE, SIDE, generator=generator) * 0.3
            x, y = torch.randint(0, SIDE - side, (2,), generator=generator).tolist()
            image[:, y : y + side, x : x + side] += 0.6
            box = torch.tensor([[float(x), float(y), x + side, y + side]])
            yield image, {"boxes": box, "labels": torch.tensor([kind])}

    fit, held, test = (list(items(count, seed)) for seed, count in enumerate((64, 24, 24)))
    generator = torch.Generator().manual_seed(0)
    return (
        DataLoader(fit, 16, shuffle=True, generator=generator, collate_fn=padded_boxes(2)),
        *(DataLoader(part, 12, collate_fn=padded_boxes(2)) for part in (held, test)),
    )


@pytest.mark.slow
def test_a_search_narrows_a_detector_and_goes_on_where_it_was_killed(tmp_path):
    detector = detector_of("retinanet")
    job = {"model": one_stage(detector), "data": loaders(), "task": task_of(detector)}
    whole = tiny_search(tmp_path / "whole", report=True, **job)
    assert whole.result.task.headline.key == "ap"
    assert {"ap", "ap50"} <= whole.result.networks["searched"].test.keys()
    assert 0 < whole.result.networks["searched"].macs <= whole.result.networks["original"].macs / 2
    narrow = detector_with(detector, whole.network)
    with torch.no_grad():
        assert len(unresized(narrow.eval(), batch()[0])) == 3
    with pytest.raises(StoppedError):
        tiny_search(tmp_path / "killed", reporter=Recorder(("original", 3)), **job | {"data": loaders()})
    resumed = tiny_search(tmp_path / "killed", **job | {"data": loaders()})
    assert resumed.result.networks == whole.result.networks
    assert bcnet.export_run(tmp_path / "whole", one_stage(detector)).difference < 1e-4
    page = (tmp_path / "whole" / "report.html").read_text()
    assert "top-1" not in page
    other = detector_of("retinanet")
    other.nms_thresh = 0.9
    with pytest.raises(RunError, match="task"):
        tiny_search(tmp_path / "whole", **job | {"task": task_of(other)})


def test_a_detector_of_two_stages_is_searched_in_a_loop_of_ones_own():
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.ops import MultiScaleRoIAlign

    torch.manual_seed(0)
    few = {f"rpn_{when}_nms_top_n_{mode}": 20 for when in ("pre", "post") for mode in ("train", "test")}
    anchors = AnchorGenerator(((8,), (16,)), ((0.5, 1.0),) * 2)
    detector = FasterRCNN(
        Backbone(), 3, min_size=SIDE, max_size=SIDE, rpn_anchor_generator=anchors, **few,
        box_roi_pool=MultiScaleRoIAlign(["0", "1"], output_size=3, sampling_ratio=2),
    )  # fmt: skip
    backbone = detector.backbone
    space = bcnet.WidthSpace.trace(backbone, torch.zeros(2, 3, SIDE, SIDE))
    supernet = bcnet.Supernet(backbone, space)
    detector.backbone = supernet.network
    images, targets = batch(2)
    optimizer = torch.optim.SGD(detector.parameters(), lr=0.01)
    steps = bcnet.SupernetSteps(supernet)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        losses.append(steps.backward(lambda _: sum(detector.train()(list(images), in_list(targets)).values())).item())
        optimizer.step()
    assert losses[-1] < losses[0]
    widths = space.uniform(macs=0.5)
    detector.backbone = bcnet.supernet.build(backbone, space, widths, weights=(supernet, bcnet.space.Side.LEFT))
    assert sum(p.numel() for p in detector.backbone.parameters()) == space.cost(widths).params
    with torch.no_grad():
        found = detector.eval()(list(images))
    assert [set(kept) for kept in found] == [{"boxes", "labels", "scores"}] * 2


def test_what_is_no_one_stage_detector_is_refused():
    with pytest.raises(ModelError, match="got Linear without backbone, head, transform"):
        one_stage(nn.Linear(1, 1))
    with pytest.raises(ModelError, match="got Linear without backbone, head, transform, anchor_generator"):
        task_of(nn.Linear(1, 1))
    with pytest.raises(ModelError, match=r"from what bcnet\.models\.one_stage gave; got Linear"):
        detector_with(detector_of("ssd"), nn.Linear(1, 1))
    detector = detector_of("retinanet")
    outputs = one_stage(detector)(batch()[0])
    with pytest.raises(ModelError, match=r"cls_logits \(batch, 40, 2\)"):
        OneStageDetection(classes=2, height=SIDE, width=SIDE, detector=detector).check(outputs, 0)
    with pytest.raises(ModelError, match=r"cls_logits \(batch, 160, 3\).*got \(3, 40, 3\)"):
        OneStageDetection(classes=3, height=64, width=64, detector=detector).check(outputs, 0)
    with pytest.raises(ModelError, match="got tuple"):
        task_of(detector).check((1,), 0)
    task_of(detector).check(outputs, 0)
