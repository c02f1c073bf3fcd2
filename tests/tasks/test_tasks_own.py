"""A task from outside the package, through a whole run; and what classification is."""

import dataclasses
import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from tiny_job import Recorder, StoppedError, TinyNetwork, tiny_data, tiny_search
from torch import nn
from torch.nn import functional

import bcnet
from bcnet.errors import ModelError, RecipeError, RunError, TrainingError
from bcnet.report.evidence import read_evidence
from bcnet.run.status import read_status
from bcnet.searchers import accuracy_interval
from bcnet.tasks import Classification, Measurement, distillation_loss
from bcnet.train import Distillation


@dataclass(frozen=True)
class Counting(bcnet.Task):
    """The label as a number, by least squares: the mean absolute error is measured."""

    name: ClassVar[str] = "counting"
    headline: ClassVar[bcnet.tasks.Metric] = bcnet.tasks.Metric(
        "mae", "mean absolute error", "stripes", digits=3, higher=False
    )
    power: int = 2

    def loss(self, outputs, targets):
        return (outputs[:, 0] - targets).abs().pow(self.power).mean()

    def score(self, outputs, targets):
        return -(outputs[:, 0] - targets).abs()

    def figures(self, outputs, targets):
        error = (outputs[:, 0] - targets).abs().float()
        return {"mae": error, "within half": (error < 0.5).float()}

    def check(self, outputs, classes):
        if outputs.shape[1:] != (1,):
            raise ModelError(f"counting needs one number for each image; got {tuple(outputs.shape[1:])}")


class Counter(TinyNetwork):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(12, 1)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counted")
    return tiny_search(folder, model=Counter, task=Counting(), report=True)


def test_a_run_is_of_its_own_loss_score_and_metric(counted):
    networks = counted.result.networks
    assert counted.result.task.headline.key == "mae"
    assert all(set(network.test) == {"mae", "within half"} for network in networks.values())
    assert counted.network(torch.zeros(2, 1, 8, 8)).shape == (2, 1)
    assert counted.result.search.metric == "own"
    assert all(candidate.score <= 0 for candidate in counted.found.evaluations)


def test_the_measured_error_is_that_of_the_network(counted):
    data = tiny_data()
    images, labels = data.normaliser(data.test.pixels), data.test.labels
    with torch.no_grad():
        error = (counted.network(images)[:, 0] - labels).abs()
    searched = counted.result.networks["searched"]
    assert searched.test["mae"] == pytest.approx(float(error.mean()), rel=1e-4)
    assert searched.test_errors["mae"] == pytest.approx(float(error.std()) / len(error) ** 0.5, rel=1e-4)


def test_what_people_read_says_what_was_measured(counted):
    page = (counted.run_dir / "report.html").read_text()
    value = counted.result.networks["searched"].test["mae"]
    assert "mean absolute error (stripes)" in page
    assert f"{value:.3f}" in page
    assert "lower is better" in page
    for text in (page, counted._repr_html_()):
        assert "top-1" not in text.lower()
    network = read_evidence(counted.run_dir).networks["searched"]
    assert network.low < network.value == value < network.high
    status = read_status(counted.run_dir)
    assert status.result["searched"]["test"]["mae"] == value


@pytest.mark.slow
def test_a_run_goes_on_with_its_task_and_is_refused_with_another(tmp_path):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path / "killed", model=Counter, task=Counting(), reporter=Recorder(("original", 2)))
    with pytest.raises(RunError, match=r'configuration: task is \'counting \{"power": 2\}\' there'):
        tiny_search(tmp_path / "killed", model=Counter, task=Counting(power=1))
    resumed = tiny_search(tmp_path / "killed", model=Counter, task=Counting())
    whole = tiny_search(tmp_path / "whole", model=Counter, task=Counting())
    assert resumed.result.networks == whole.result.networks


def test_what_does_not_fit_is_refused_before_anything_is_trained(tmp_path):
    recipe = bcnet.Recipe(lr=0.05, batch_size=16, epochs=2, label_smoothing=0.1)
    for options, message in (
        (
            {"task": Counting},
            r"a task must be a value of a subclass of bcnet.Task; got <class .*: give Mine\(\), not Mine",
        ),
        ({"task": Counting(), "model": TinyNetwork}, r"one number for each image; got \(3,\)"),
        ({"task": Counting(), "loss": functional.l1_loss}, "a task comes with its own loss; got loss= as well"),
        (
            {"task": Counting(), "training": recipe},
            "label smoothing and distillation are for classification; got the task",
        ),
    ):
        with pytest.raises((RecipeError, ModelError), match=message):
            tiny_search(tmp_path / "run", **({"model": Counter} | options))
        assert not (tmp_path / "run").exists()


class Broken(Counting):
    def figures(self, outputs, targets):
        return {"mae": outputs}


class Nameless(Counting):
    def figures(self, outputs, targets):
        return {"error": outputs[:, 0]}


class Infinite(Counting):
    def figures(self, outputs, targets):
        return {"mae": outputs[:, 0] / 0}


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Broken(), r"the figure 'mae' must be a tensor of one value for each image, \(4,\); got \(4, 1\)"),
        (Nameless(), "have its headline 'mae', for at least one test image; got error"),
        (Infinite(), "figures must be finite numbers; got others for 'mae'"),
    ],
)
def test_figures_that_cannot_be_are_named(task, message):
    with pytest.raises(TrainingError, match=message):
        task.test(nn.Linear(2, 1), [(torch.ones(4, 2), torch.ones(4))])


def test_a_test_gives_the_mean_over_all_images_whatever_the_batches():
    network = nn.Linear(2, 1)
    x, y = torch.randn(10, 2, generator=torch.Generator().manual_seed(0)), torch.arange(10.0)
    whole = Counting().test(network, [(x, y)])
    assert isinstance(whole, Measurement)
    parts = Counting().test(network, [(x[:3], y[:3]), (x[3:], y[3:])])
    assert parts.figures == pytest.approx(whole.figures)
    assert parts.count == whole.count == 10
    assert network.training


def test_classification_trains_by_smoothed_cross_entropy_mixed_with_a_teacher():
    generator = torch.Generator().manual_seed(0)
    logits, teacher = (torch.randn(6, 4, generator=generator) for _ in range(2))
    labels = torch.arange(6) % 4
    task = Classification()
    assert task.loss(logits, labels) == functional.cross_entropy(logits, labels)
    smoothed = functional.cross_entropy(logits, labels, label_smoothing=0.2)
    assert task.training_loss(logits, labels, label_smoothing=0.2) == smoothed
    assert smoothed != task.loss(logits, labels)
    taught = task.training_loss(logits, labels, taught=teacher, distilling=Distillation(temperature=3.0, weight=0.25))
    assert taught == pytest.approx(0.75 * float(task.loss(logits, labels)) + 0.25 * float(soft(logits, teacher, 3.0)))


def soft(logits, teacher, temperature):
    """Hinton's loss by its definition: the factor tau^2 keeps the gradient's size."""
    p = functional.softmax(teacher / temperature, dim=1)
    q = functional.softmax(logits / temperature, dim=1)
    return temperature**2 * (p * (p / q).log()).sum(dim=1).mean()


@pytest.mark.parametrize("temperature", [1.0, 4.0, 20.0])
def test_a_teacher_pulls_as_hard_at_any_temperature(temperature):
    generator = torch.Generator().manual_seed(1)
    logits, teacher = (torch.randn(8, 5, generator=generator) for _ in range(2))
    assert float(distillation_loss(logits, teacher, temperature)) == pytest.approx(
        float(soft(logits, teacher, temperature)), rel=1e-4
    )
    logits.requires_grad_()
    distillation_loss(logits, teacher, temperature).backward()
    assert 0.02 < float(logits.grad.norm()) < 1.0, "without the factor it is 0.0005 at temperature 20"


def test_classification_is_a_task_as_others_are(tmp_path):
    outcome = tiny_search(tmp_path)
    assert outcome.result.task.name == "classification"
    assert outcome.result.headline == Classification.headline
    network = bcnet.Run.open(tmp_path).networks["searched"]
    data = tiny_data()
    shares = Classification().test(outcome.network, [(data.normaliser(data.test.pixels), data.test.labels)])
    figures = outcome.result.networks["searched"].test
    assert figures == pytest.approx(shares.figures)
    right = round(shares.figures["top1"] / 100 * shares.count)
    hits = np.repeat([100.0, 0.0], [right, shares.count - right])
    assert (network.low, network.high) == pytest.approx(accuracy_interval(hits))
    assert json.loads((tmp_path / "settings.json").read_text())["task"] == "classification"


def test_the_interval_of_a_share_is_wilsons_and_of_others_the_normal_one():
    share, error = bcnet.tasks.Metric("hit", "hits", share=True), bcnet.tasks.Metric("mae", "error")
    measured = Measurement({"hit": 100.0, "mae": 3.0}, {"hit": 0.0, "mae": 0.5}, 20)
    assert measured.interval(share) == pytest.approx((83.89, 100), abs=0.01)
    assert measured.interval(error) == pytest.approx((2.02, 3.98))


def test_images_whose_logits_are_no_numbers_are_neither_right_nor_wrong():
    logits = torch.tensor([[1.0, 0.0], [torch.nan, 0.0], [0.0, 1.0]])
    figures = Classification().figures(logits, torch.tensor([0, 0, 0]))
    assert figures["top1"][[0, 2]].tolist() == [100, 0]
    assert figures["top1"].isnan().tolist() == [False, True, False]
    with pytest.raises(TrainingError, match="others for 'top1': the weights are broken"):
        Classification().test(Fixed(logits), [(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64))])


def test_weighted_classes_count_as_their_weights_say():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(40, 3, generator=generator), torch.randint(3, (40,), generator=generator)
    weights = torch.tensor([1.0, 4.0, 0.5])
    task = Classification(class_weights=(1, 4, 0.5))
    each = weights[labels] * nn.functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(task.training_loss(logits, labels), each.mean())
    torch.testing.assert_close(task.loss_score(logits, labels), -each.double())
    smoothed = nn.functional.cross_entropy(logits, labels, weights, label_smoothing=0.1, reduction="sum") / 40
    torch.testing.assert_close(task.training_loss(logits, labels, label_smoothing=0.1), smoothed)
    assert task.description == 'classification {"class_weights": [1.0, 4.0, 0.5]}'
    assert Classification().description == "classification"


def test_balanced_classes_have_equal_shares():
    labels = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    task = Classification(class_weights="balanced").with_labels(labels, 3)
    shares = torch.tensor(task.class_weights)[labels]
    torch.testing.assert_close(
        torch.bincount(labels, weights=shares).float(), torch.full((3,), 100 / 3, dtype=torch.float32)
    )
    assert Classification().with_labels(labels, 3).class_weights is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Classification(class_weights=(1.0, 0.0)), r"must be positive numbers.*; got \(1.0, 0.0\)"),
        (lambda: Classification(class_weights=(1.0, float("nan"))), "must be positive numbers"),
        (lambda: Classification(own=nn.CrossEntropyLoss(), class_weights="balanced"), "a loss of your own beside"),
        (lambda: Classification(class_weights=(1.0,)).with_labels(None, 3), "one for each of 3 classes; got 1: "),
        (lambda: Classification(class_weights="balanced").with_labels(None, 3), "needs labels to count; got none"),
    ],
)
def test_weights_of_classes_that_do_not_do(make, message):
    with pytest.raises(RecipeError, match=message):
        make()


def test_a_run_weighs_classes_and_resumes_with_the_numbers(tmp_path):
    data = tiny_data()
    few = torch.cat([(data.train.labels == 0).nonzero().flatten()[:6], (data.train.labels > 0).nonzero().flatten()])
    uneven = dataclasses.replace(data, train=data.train.subset(few))
    outcome = tiny_search(tmp_path / "a", data=uneven, task="classification:class_weights=balanced")
    counts = torch.bincount(uneven.train.labels)
    weights = bcnet.tasks.task_described(
        json.loads((tmp_path / "a" / "settings.json").read_text())["task"]
    ).class_weights
    assert weights == pytest.approx((len(few) / (3 * counts)).tolist())
    # All classes twice as heavy, at half the rate: the same training, and scores by loss that are twice as large.
    plain = tiny_search(tmp_path / "b", data=uneven, training={"lr": 0.05})
    heavy = Classification(class_weights=(2.0, 2.0, 2.0))
    twice = tiny_search(tmp_path / "c", data=uneven, task=heavy, training={"lr": 0.025})
    assert [c.score for c in twice.found.evaluations] == pytest.approx([2 * c.score for c in plain.found.evaluations])
    again = tiny_search(tmp_path / "a", data=uneven, task=Classification(class_weights="balanced"))
    assert again.result == outcome.result


def test_figures_by_class_add_up_to_the_whole():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(90, 5, generator=generator), torch.randint(5, (90,), generator=generator)
    labels[labels == 3] = 1  # a class that the test images lack
    measured = Classification().test(Fixed(logits[:30].repeat(3, 1)), [(torch.zeros(30, 1), labels[:30])] * 2)
    right = logits[:30].argmax(1) == labels[:30]
    assert set(measured.by_class) == {0, 1, 2, 4}
    for number, (count, share) in measured.by_class.items():
        mine = labels[:30] == number
        assert (count, share) == (2 * int(mine.sum()), pytest.approx(100 * float(right[mine].double().mean())))
    whole = sum(count * share for count, share in measured.by_class.values()) / measured.count
    assert whole == pytest.approx(measured.figures["top1"])
    targets = torch.zeros(3)
    assert Counting().test(Fixed(torch.zeros(3, 1)), [(torch.zeros(3, 1), targets)]).by_class == {}


class Fixed(nn.Module):
    """Gives the same outputs whatever comes in."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = nn.Parameter(outputs)

    def forward(self, x):
        return self.outputs[: len(x)]


def test_figures_that_some_batches_lack_are_refused():
    class Fickle(Counting):
        def figures(self, outputs, targets):
            return {"mae": targets.double()} | ({"more": targets.double()} if len(targets) == 1 else {})

    batches = [(torch.zeros(count, 1), torch.zeros(count)) for count in (3, 1)]
    with pytest.raises(TrainingError, match="every figure must be there for all 4 images; got 1 of 'more'"):
        Fickle().test(Fixed(torch.zeros(3, 1)), batches)
