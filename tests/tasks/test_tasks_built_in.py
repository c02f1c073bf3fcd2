"""The built-in tasks: what they measure, as others compute it, what they refuse, and whole runs of them."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, jaccard_score
from tiny_job import Recorder, StoppedError, tiny_search
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import bcnet
import bcnet.tasks
from bcnet.data import Loaders
from bcnet.errors import DataError, ModelError, RecipeError, RunError, TrainingError
from bcnet.tasks import Classification, DenseRegression, MultiLabel, Regression, Segmentation
from bcnet.tasks.base import pooled_ratio
from bcnet.train.recipe import Distillation


class Fixed(nn.Module):
    """Gives what it is shown."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x


def masks(seed, count=12, classes=4):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(classes - 1, (count, 5, 6), generator=generator)  # the last class never is there
    targets[torch.rand(targets.shape, generator=generator) < 0.1] = 255
    return torch.randn(count, classes, 5, 6, generator=generator), targets


def batches(outputs, targets, size=5):
    return list(zip(outputs.split(size), targets.split(size), strict=True))


@given(st.integers(0, 10**6))
def test_miou_is_that_of_all_pixels_whatever_the_batches(seed):
    logits, targets = masks(seed)
    task = Segmentation(classes=4)
    measured = task.test(Fixed(), batches(logits, targets))
    counted = (targets != 255).numpy()
    wanted, guessed = targets.numpy()[counted], logits.argmax(1).numpy()[counted]
    assert measured.figures["pixels"] == pytest.approx(100 * np.mean(wanted == guessed))
    assert measured.figures["miou"] == pytest.approx(100 * jaccard_score(wanted, guessed, average="macro"))
    assert measured.figures == pytest.approx(task.test(Fixed(), batches(logits, targets, 12)).figures)
    assert measured.count == 12


@pytest.mark.parametrize("size", [(30,), (3, 2, 5)])
@given(st.integers(0, 10**6))
def test_signals_and_volumes_are_measured_like_images(size, seed):
    logits, targets = masks(seed)
    task = Segmentation(classes=4, dice=0.4)
    others = logits.reshape(12, 4, *size), targets.reshape(12, *size)
    torch.testing.assert_close(task.loss(*others), task.loss(logits, targets))
    torch.testing.assert_close(task.score(*others), task.score(logits, targets))
    assert task.test(Fixed(), [others]).figures == pytest.approx(task.test(Fixed(), [(logits, targets)]).figures)
    task.check(others[0], 0)
    assert torch.equal(task.check_targets(others[1], "it"), others[1])
    pixels, images = logits, torch.rand_like(logits)
    dense = DenseRegression()
    flat = [part.reshape(12, 4, *size) for part in (pixels, images)]
    torch.testing.assert_close(dense.loss(*flat), dense.loss(pixels, images))
    torch.testing.assert_close(dense.score(*flat), dense.score(pixels, images))


@pytest.mark.parametrize(("part", "size"), [((4,), (8,)), ((2, 3, 4), (4, 6, 8))])
def test_logits_of_signals_and_volumes_are_resized_to_their_masks(part, size):
    task = Segmentation(2)
    logits = torch.zeros(3, 2, *part)
    logits[:, 1] = 1
    assert task.test(Fixed(), [(logits, torch.ones(3, *size).long())]).figures["pixels"] == 100
    with pytest.raises(DataError, match="masks must be of the shape of their images"):
        task.loss(logits, torch.ones(3, 5, 5, 5, 5).long())


def test_one_number_needs_no_dimension_of_its_own():
    outputs, targets = torch.tensor([1.0, 3.0]), torch.tensor([[2.0], [5.0]])
    task = Regression()
    task.check(outputs, 0)
    assert task.loss(outputs, targets) == task.loss(outputs[:, None], targets) == 2.5
    assert task.score(outputs, targets[:, 0]).tolist() == [-1, -4]
    assert task.test(Fixed(), [(outputs, targets)]).figures == pytest.approx({"mae": 1.5, "mse": 2.5})


def test_depth_maps_without_channels_are_explained():
    with pytest.raises(ModelError, match="give targets a dimension of channels"):
        DenseRegression().loss(torch.zeros(2, 1, 4, 4), torch.zeros(2, 4, 4))


@given(st.integers(1, 32), st.integers(1, 200), st.integers(1, 200), st.booleans())
def test_masks_of_their_images_shape_are_taken_at_any_stride(stride, height, width, up):
    rounded = math.ceil if up else lambda side: max(1, math.floor(side))
    small = torch.zeros(1, 2, rounded(height / stride), rounded(width / stride))
    assert Segmentation(2).score(small, torch.zeros(1, height, width).long()).shape == (1,)


@pytest.mark.parametrize(("logits", "masks"), [((8, 8), (4, 8)), ((8, 8), (32, 48)), ((12, 16), (48, 48))])
def test_masks_of_another_shape_than_their_images_are_refused(logits, masks):
    said = f"got masks of {masks[0]} x {masks[1]} and logits at {logits[0]} x {logits[1]}: crop, pad and resize"
    with pytest.raises(DataError, match=said):
        Segmentation(2).loss(torch.zeros(1, 2, *logits), torch.zeros(1, *masks).long())


def test_the_error_of_a_pooled_ratio_is_that_of_other_images():
    rng = np.random.default_rng(0)

    def draw():
        there = rng.integers(5, 50, (60, 3))
        return torch.tensor(np.stack([rng.binomial(there, [0.2, 0.5, 0.8]), there], axis=-1)).double()

    found = [pooled_ratio(draw()) for _ in range(200)]
    spread = np.std([float(value) for value, _ in found])
    assert np.mean([float(error) for _, error in found]) == pytest.approx(spread, rel=0.15)


def test_a_class_that_is_nowhere_does_not_count():
    counts = torch.tensor([[[1.0, 2.0], [0.0, 0.0]], [[2.0, 2.0], [0.0, 0.0]]])
    value, error = pooled_ratio(counts)
    assert float(value) == pytest.approx(0.75)
    assert float(error) == pytest.approx(math.sqrt(0.5 * 2 * 0.25**2))


@given(st.integers(0, 10**6))
def test_the_loss_of_a_segmentation_is_cross_entropy_and_its_score_that_of_each_image(seed):
    logits, targets = masks(seed)
    task = Segmentation(classes=4)
    expected = functional.cross_entropy(logits, targets, ignore_index=255)
    torch.testing.assert_close(task.loss(logits, targets), expected)
    each = torch.stack(
        [functional.cross_entropy(x[None], y[None], ignore_index=255) for x, y in zip(logits, targets, strict=True)]
    )
    torch.testing.assert_close(task.score(logits, targets), -each)


def test_dice_is_its_share_of_the_loss():
    logits, targets = masks(0)
    shares = logits.softmax(1).numpy()
    kept = (targets != 255).numpy()
    terms = []
    for number in range(3):
        wanted = (targets == number).numpy()
        share = shares[:, number] * kept
        terms.append(2 * (share * wanted).sum() / (share.sum() + wanted.sum()))
    plain = float(Segmentation(classes=4).loss(logits, targets))
    mixed = float(Segmentation(classes=4, dice=0.25).loss(logits, targets))
    assert mixed == pytest.approx(0.75 * plain + 0.25 * (1 - np.mean(terms)), rel=1e-5)


def test_logits_are_found_in_dicts_and_tuples_and_brought_to_size():
    logits, targets = masks(1)
    task = Segmentation(classes=4)
    for outputs in ({"out": logits, "aux": logits * 0}, (logits, None)):
        assert task.loss(outputs, targets) == task.loss(logits, targets)
    small = functional.avg_pool2d(logits, 2)
    full = functional.interpolate(small, size=(5, 6), mode="bilinear", align_corners=False)
    assert torch.equal(task.score(small, targets), task.score(full, targets))


@given(st.integers(0, 10**6))
def test_f1_is_that_of_all_images(seed):
    generator = torch.Generator().manual_seed(seed)
    targets = (torch.rand(20, 3, generator=generator) < 0.4).float()
    logits = torch.randn(20, 3, generator=generator)
    measured = MultiLabel(3).test(Fixed(), batches(logits, targets))
    there = (targets.sum(0) + (logits > 0).sum(0)).numpy() > 0
    each = f1_score(targets.numpy(), (logits > 0).numpy(), average=None, zero_division=0)
    assert measured.figures["f1"] == pytest.approx(100 * each[there].mean())
    assert measured.figures["labels"] == pytest.approx(100 * ((logits > 0) == (targets > 0)).double().mean().item())
    torch.testing.assert_close(-MultiLabel(3).score(logits, targets).mean(), MultiLabel(3).loss(logits, targets))


def test_psnr_is_in_decibels_below_the_peak():
    targets = torch.rand(4, 3, 8, 8)
    for peak, off, expected in ((1.0, 0.1, 20.0), (255.0, 25.5, 20.0), (1.0, 0.01, 40.0), (1.0, 0.0, 100.0)):
        score = DenseRegression(peak=peak).score(targets.double() + off, targets.double())
        torch.testing.assert_close(score, torch.full((4,), expected, dtype=torch.float64), rtol=1e-3, atol=1e-3)
    assert DenseRegression().loss(targets + 0.5, targets) == pytest.approx(0.5)


def test_a_regression_is_of_as_many_numbers_as_it_says():
    outputs, targets = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.tensor([[1.0, 4.0], [3.0, 4.0]])
    task = Regression(values=2)
    assert float(task.loss(outputs, targets)) == 1.25
    assert task.score(outputs, targets).tolist() == [-2.0, -0.5]
    assert task.test(Fixed(), [(outputs, targets)]).figures == {"mae": 0.75, "mse": 1.25}
    assert Regression().check_targets(torch.tensor([1, 2]), "x").tolist() == [[1.0], [2.0]]


def test_a_regression_of_labels_compares_each_with_its_own_image():
    outputs, labels = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 1, 2])
    task = Regression()
    assert float(task.loss(outputs, labels)) == pytest.approx(1 / 3)
    assert task.score(outputs, labels).tolist() == [0.0, 0.0, -1.0]
    assert task.test(Fixed(), [(outputs, labels)]).figures == pytest.approx({"mae": 1 / 3, "mse": 1 / 3})


NAN = torch.tensor([0.0, float("nan")])
WRONG = [
    (
        Segmentation(3),
        torch.zeros(2, 1, 4, 4),
        r"masks of it must be class numbers of shape \(2, height, width\), one .* for volumes; got torch",
    ),
    (Segmentation(3), torch.full((2, 4, 4), 3), "classes from 0 to 2, or 255 .*; got 3 in number 0 of a batch"),
    (Segmentation(3), torch.tensor([[[0]], [[-1]]]), "got -1 in number 1 of a batch"),
    (MultiLabel(2), torch.zeros(2, 3), r"zeros and ones of shape \(2, 2\); got torch.float32 \(2, 3\)"),
    (MultiLabel(2), torch.full((2, 2), 2), "with other values"),
    (Regression(), NAN, "not finite in number 1 of the batch: look at that item"),
    (Regression(3), torch.zeros(2, 2), "3 numbers for each of its 2 images"),
    (DenseRegression(), torch.zeros(2, 4), r"images \(2, channels, height, width\); got \(2, 4\)"),
    (DenseRegression(), NAN[:, None, None, None].expand(2, 3, 4, 4), "not finite in number 1 of the batch"),
]


@pytest.mark.parametrize(("task", "targets", "message"), WRONG)
def test_targets_of_another_kind_are_refused(task, targets, message):
    with pytest.raises(DataError, match=message):
        task.check_targets(targets, "it")


@pytest.mark.parametrize(
    ("task", "outputs", "message"),
    [
        (Segmentation(3), torch.zeros(2, 4, 8, 8), r"logits \(batch, 3, height, width\).*got \(2, 4, 8, 8\)"),
        (Segmentation(3), {"mask": torch.zeros(2, 3, 8, 8)}, "got dict: change its last layer"),
        (MultiLabel(3), torch.zeros(2, 4), "one for each label; got"),
        (Regression(2), torch.zeros(2), r"numbers \(batch, 2\)"),
        (DenseRegression(), torch.zeros(2, 4), "must return images"),
    ],
)
def test_outputs_of_another_kind_are_refused(task, outputs, message):
    with pytest.raises(ModelError, match=message):
        task.check(outputs, 0)


def test_settings_out_of_range_are_refused():
    for make in (
        lambda: Segmentation(1),
        lambda: Segmentation(3, ignore=2),
        lambda: Segmentation(3, dice=2),
        lambda: MultiLabel(0),
        lambda: Regression(0),
        lambda: DenseRegression(peak=0),
    ):
        with pytest.raises(RecipeError, match="got"):
            make()


class Narrow(nn.Module):
    """A little U of two levels."""

    def __init__(self, outputs=3):
        super().__init__()
        self.down, self.deep = self.layer(1, 8), self.layer(8, 12, 2)
        self.up, self.last = nn.ConvTranspose2d(12, 8, 2, 2), nn.Conv2d(16, outputs, 1)

    @staticmethod
    def layer(inputs, outputs, stride=1):
        convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, x):
        x = self.down(x)
        return self.last(torch.cat([x, self.up(self.deep(x))], 1))


class Spread(Narrow):
    def __init__(self):
        super().__init__(1)


class Several(Narrow):
    def forward(self, x):
        return super().forward(x).mean((2, 3))


def stripes(count, seed):
    """Noise with bright rows and dark columns, and which pixel is of which."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 1, 8, 8, generator=generator) * 0.3
    mask = torch.zeros(count, 8, 8, dtype=torch.int64)
    for number in range(count):
        row, column = torch.randint(8, (2,), generator=generator).tolist()
        x[number, 0, row] += 2
        mask[number, row] = 1
        x[number, 0, :, column] -= 2
        mask[number, :, column] = 2
    return x, mask


def loaders(of_masks, shuffle=True):
    """Three loaders of stripes, with targets made of the masks."""
    parts = []
    for number, count in enumerate((96, 48, 48)):
        x, mask = stripes(count, number)
        loader = DataLoader(TensorDataset(x, of_masks(x, mask)), 16, shuffle=shuffle and number == 0)
        parts.append(loader)
    return Loaders(*parts, name="stripes")


TASKS = {
    "segmentation": (Segmentation(classes=3), Narrow, lambda x, mask: mask, "mIoU"),
    "dense regression": (DenseRegression(peak=2.0), Spread, lambda x, mask: mask[:, None].float(), "PSNR"),
    "multi-label": (
        MultiLabel(3),
        Several,
        lambda x, mask: torch.stack([mask[:, r, 0] == 1 for r in range(3)], 1),
        "F1",
    ),
    "regression": (Regression(3), Several, lambda x, mask: mask[:, :3, 0].float(), "mean absolute error"),
}


LONG = ("segmentation", "dense regression", "regression")  # a killed segmentation goes on in a quick test of its own


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LONG else []) for n in TASKS])
def test_a_run_of_each_task_ends_with_what_it_measures(name, tmp_path):
    task, model, of_masks, words = TASKS[name]
    outcome = tiny_search(tmp_path, model=model, data=loaders(of_masks), task=task, report=True)
    networks = outcome.result.networks
    assert all(task.headline.key in network.test for network in networks.values())
    page = (tmp_path / "report.html").read_text()
    assert words in page
    assert "top-1" not in page.lower()
    test = loaders(of_masks).test
    expected = task.test(outcome.network, [(x, task.check_targets(y, "it")) for x, y in test])
    assert networks["searched"].test == pytest.approx(dict(expected.figures), rel=1e-3)
    pytest.importorskip("onnxruntime")
    assert bcnet.export_run(tmp_path, model).difference < 1e-4
    card = (tmp_path / "model_card.md").read_text()
    assert f"The output is what the task {task.name} takes" in card
    assert words in card
    assert "logit" not in card


@pytest.mark.slow
def test_a_killed_segmentation_goes_on_as_if_it_had_not_been(tmp_path):
    task, model, of_masks, _ = TASKS["segmentation"]
    with pytest.raises(StoppedError):
        tiny_search(
            tmp_path / "killed", model=model, data=loaders(of_masks), task=task, reporter=Recorder(("original", 5))
        )
    with pytest.raises(RunError, match=r'task is .segmentation \{"classes": 3'):
        tiny_search(tmp_path / "killed", model=model, data=loaders(of_masks), task=Segmentation(classes=3, dice=0.5))
    tiny_search(tmp_path / "killed", model=model, data=loaders(of_masks), task=task)
    tiny_search(tmp_path / "whole", model=model, data=loaders(of_masks), task=task)
    killed, whole = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("killed", "whole"))
    assert killed["networks"] == whole["networks"]
    assert (tmp_path / "killed" / "final.safetensors").read_bytes() == (
        tmp_path / "whole" / "final.safetensors"
    ).read_bytes()


def test_what_is_wrong_with_a_batch_is_told_before_anything_is_trained(tmp_path):
    task, model, of_masks, _ = TASKS["segmentation"]
    for data, wanted, message in (
        (loaders(lambda x, mask: mask + 1), task, "got 3 in number 0 of a batch"),
        (loaders(of_masks), bcnet.tasks.Classification(), "the labels of the validation loader must be class numbers"),
        (loaders(of_masks), Segmentation(classes=5), "a segmentation of 5 classes; got"),
        (loaders(lambda x, mask: mask[:, :4]), task, "got masks of 4 x 8 and logits at 8 x 8"),
        (loaders(lambda x, mask: x[..., :4]), bcnet.tasks.DenseRegression(), r"targets, \(1, 8, 4\); got \(3, 8, 8\)"),
    ):
        with pytest.raises((DataError, ModelError), match=message):
            tiny_search(tmp_path / "run", model=model, data=data, task=wanted)
        assert not (tmp_path / "run").exists()


def test_a_data_set_of_labels_is_of_no_task_of_masks(tmp_path):
    with pytest.raises(DataError, match=r"masks of the training images of stripes must be .*; got torch.int64"):
        tiny_search(tmp_path / "run", model=Narrow, task=Segmentation(classes=3))
    assert not (tmp_path / "run").exists()


def test_images_and_targets_are_as_many():
    x, mask = stripes(4, 0)
    uneven = [(x[:3], mask)]
    with pytest.raises(
        DataError, match=r"one for each image; got torch.float32 \(3, 1, 8, 8\) and torch.int64 \(4, 8, 8\)"
    ):
        _ = Loaders(uneven, uneven, uneven).held_out


def test_classes_with_names_are_counted_without_reading_anything():
    unread = [None]
    assert Loaders(unread, unread, unread, class_names=("cat", "dog")).num_classes == 2


def test_targets_of_several_shapes_are_refused():
    x, mask = stripes(4, 0)
    ragged = [(x[:2], mask[:2]), (x[2:], mask[2:, :4])]
    with pytest.raises(DataError, match=r"images of one shape, and targets of one; got \(4, 8\) and \(8, 8\)"):
        _ = Loaders(ragged, ragged, ragged).held_out


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (torch.zeros(4, 1, dtype=torch.int64), r"squeeze\(1\)"),
        (torch.rand(4), "task='regression:values=1'"),
        (torch.rand(4, 3), "task='regression:values=3'"),
        (torch.ones(4), "task='multi-label:labels=1'"),
        (torch.eye(4), r"task='multi-label:labels=4'.*argmax\(1\)"),
        (torch.full((4, 8, 8), 6), "task='segmentation:classes=7'"),
        (torch.full((4, 1, 8, 8), 6), "task='segmentation:classes=7'"),
        (torch.full((4, 1, 8, 8, 8), 6), "task='segmentation:classes=7'"),
        (torch.full((4, 8, 8, 8), 6), "task='segmentation:classes=7'.*task='dense-regression'"),
        (torch.full((4, 64), 6), "task='regression:values=64'.*task='segmentation:classes=7'"),
        (torch.rand(4, 3, 8, 8), "task='dense-regression'"),
        (torch.rand(4, 8, 8), "task='dense-regression'"),
    ],
)
def test_targets_that_are_no_labels_are_refused_with_the_task_that_suits_them(targets, said) -> None:
    with pytest.raises(DataError, match=said):
        Classification().check_targets(targets, "the training loader")


def test_targets_with_a_dimension_more_or_less_are_taken() -> None:
    masks = torch.randint(3, (4, 1, 8, 8), dtype=torch.uint8)
    assert torch.equal(Segmentation(classes=3).check_targets(masks, "x"), masks[:, 0].long())
    assert MultiLabel(labels=1).check_targets(torch.ones(4), "x").shape == (4, 1)
    labels = torch.arange(4, dtype=torch.uint8)
    assert torch.equal(Classification().check_targets(labels, "x"), torch.arange(4))


@given(st.integers(0, 2**16), st.sampled_from([0.0, 0.1]))
def test_auxiliary_heads_add_their_loss_and_learn_from_labels_alone(seed, smoothing) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, first, second = torch.randn(3, 6, 4, generator=generator)
    labels = torch.randint(4, (6,), generator=generator)
    task = Classification()

    def cost(z):
        return functional.cross_entropy(z, labels, label_smoothing=smoothing)

    found = task.training_loss((logits, first, None, second), labels, label_smoothing=smoothing)
    torch.testing.assert_close(found, cost(logits) + 0.3 * (cost(first) + cost(second)))
    learning = {"taught": first, "distilling": Distillation(weight=0.5, temperature=2.0), "label_smoothing": smoothing}
    alone = task.training_loss(logits, labels, **learning)
    torch.testing.assert_close(task.training_loss((logits, second), labels, **learning), alone + 0.3 * cost(second))
    for features in (logits[0], torch.randn(6, 32)):
        with pytest.raises(TrainingError, match=r"after the logits \(6, 4\) must be .*auxiliary heads, .*; got"):
            task.training_loss((logits, features), labels)


class TwoHeads(nn.Module):
    """A network with an auxiliary head in training mode, as GoogLeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 12, 3, stride=2), nn.BatchNorm2d(12), nn.ReLU())
        self.head, self.auxiliary = nn.Linear(12, 3), nn.Linear(8, 3)

    def forward(self, x):
        early = self.first(x)
        logits = self.head(self.second(early).mean((2, 3)))
        return (logits, self.auxiliary(early.mean((2, 3)))) if self.training else logits


@pytest.mark.parametrize("method", ["trainings:effort=small", "bcnet:population=4,generations=2,parents=2"])
def test_networks_with_auxiliary_heads_are_searched(tmp_path, method) -> None:
    outcome = tiny_search(tmp_path, model=TwoHeads, method=method, training={"epochs": 4})
    assert outcome.result.networks["searched"].test["top1"] > 50
    trained, fresh = outcome.network.auxiliary.weight, TwoHeads().auxiliary.weight
    assert trained.shape[1] <= fresh.shape[1]
    assert outcome.network.eval()(torch.zeros(2, 1, 8, 8)).shape == (2, 3)


@pytest.mark.parametrize(
    ("task", "outputs", "targets"),
    [
        (Classification(), (4, 3), torch.tensor([0, 1, 2, 1])),
        (MultiLabel(3), (4, 3), torch.eye(4, 3)),
        (Regression(1), (4, 1), torch.arange(4.0)),
        (Segmentation(3), (4, 3, 2, 2), torch.arange(16).view(4, 2, 2) % 3),
    ],
)
@pytest.mark.parametrize("by_key", [True, False])
def test_outputs_that_name_their_logits_are_worth_what_these_are(task, outputs, targets, by_key) -> None:
    logits = torch.randn(outputs, generator=torch.Generator().manual_seed(0))
    named = {"features": logits + 1, "logits": logits}
    given = named if by_key else SimpleNamespace(**named)
    task.check(given, 3)
    for worth in (task.loss, task.score):
        assert torch.equal(worth(given, targets), worth(logits, targets))
    found, expected = task.figures(given, targets), task.figures(logits, targets)
    assert all(torch.equal(found[key], values) for key, values in expected.items())
    assert str(task.show(None, targets, given)) == str(task.show(None, targets, logits))


def test_of_outputs_by_name_those_called_aux_are_auxiliary_heads() -> None:
    logits, targets = torch.eye(3), torch.tensor([0, 1, 1])
    by_name = Classification().loss({"logits": logits, "features": logits + 1, "aux_logits": 2 * logits}, targets)
    assert torch.equal(by_name, Classification().loss((logits, 2 * logits), targets))
