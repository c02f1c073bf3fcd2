"""Scores of a supernet, here of one made of a formula."""

import numpy as np
import pytest
import torch
from stand_in_device import DEVICE, stand_in

from bcnet.errors import SearchError
from bcnet.searchers import SupernetEvaluator, accuracy_interval, confidence_interval, rescore
from bcnet.searchers.result import Candidate
from bcnet.space import Cost, Side


def paths(images, widths, side):
    """LEFT is right on the first `widths[0]` of 10 classes, RIGHT always wrong."""
    logits = torch.zeros(len(images), 11)
    labels = images[:, 0, 0, 0].long()
    right = (labels < widths[0]) & (side is Side.LEFT)
    logits[torch.arange(len(images)), torch.where(right, labels, 10)] = 5.0
    return logits


def batches(count=2):
    labels = torch.arange(10)
    return [(labels.float().reshape(-1, 1, 1, 1), labels) for _ in range(count)]


def test_the_score_is_the_mean_over_both_sides():
    evaluator = SupernetEvaluator(paths, batches())
    assert evaluator((6,)) == pytest.approx(30.0)
    assert evaluator.on_side((6,), Side.LEFT) == pytest.approx(60.0)
    assert evaluator.on_side((6,), Side.RIGHT) == 0.0
    assert evaluator.per_image((6,)).shape == (20,)


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_a_supernet_of_one_side_is_asked_for_that_side_alone(metric):
    asked = []

    def heard(images, widths, side):
        asked.append(side)
        return paths(images, widths, side)

    one, both = (SupernetEvaluator(heard, batches(), metric, *sides) for sides in (((Side.LEFT,),), ()))
    assert one((6,)) == pytest.approx(one.on_side((6,), Side.LEFT))
    assert one.per_image((6,)).mean() == pytest.approx(one((6,)))
    assert set(asked) == {Side.LEFT}
    assert both.per_image((6,)).mean() == pytest.approx(both((6,)))
    assert set(asked) == {Side.LEFT, Side.RIGHT}


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_a_candidate_waits_for_the_device_once(metric):
    batches = [(torch.zeros(10, 11, device=DEVICE), torch.zeros(10, dtype=torch.long, device=DEVICE))] * 3
    evaluator = SupernetEvaluator(lambda images, widths, side: images.exp(), batches, metric)
    for score in (evaluator, evaluator.per_image):
        with stand_in() as waits:
            score((1,))
        assert waits == ["searchers/evaluator.py: _to_copy"]


def test_the_loss_is_better_when_higher():
    evaluator = SupernetEvaluator(paths, batches(), metric="loss")
    assert evaluator((8,)) > evaluator((2,))


def test_batches_may_be_of_one_image():
    images, labels = batches(1)[0]
    one_by_one = [(images[i : i + 1], labels[i : i + 1]) for i in range(len(labels))]
    assert SupernetEvaluator(paths, one_by_one)((8,)) == pytest.approx(SupernetEvaluator(paths, batches(1))((8,)))


def test_batches_have_one_size():
    ragged = [*batches(1), (torch.zeros(3, 1, 1, 1), torch.zeros(3, dtype=torch.long))]
    for wrong in ([], ragged):
        with pytest.raises(SearchError, match="all of one size"):
            SupernetEvaluator(paths, wrong)
    with pytest.raises(SearchError, match="got 'f1'"):
        SupernetEvaluator(paths, batches(), metric="f1")


def test_the_best_are_scored_again_with_intervals():
    flattering = [Candidate((w,), 100.0 - w, Cost(w, w)) for w in range(1, 9)]
    again = rescore(flattering, SupernetEvaluator(paths, batches()), count=3)
    assert [r.candidate.widths for r in again] == [(3,), (2,), (1,)]
    assert all(r.low < r.score < r.high for r in again)


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        low, high = confidence_interval(rng.normal(3.0, 2.0, size=50))
        inside += low <= 3.0 <= high
    assert 0.91 <= inside / 400 <= 0.98


@pytest.mark.parametrize(
    ("right", "count", "expected"), [(20, 20, (83.89, 100)), (0, 20, (0, 16.11)), (8, 10, (49.02, 94.33))]
)
def test_an_accuracy_has_wilsons_interval(right, count, expected):
    assert accuracy_interval(100.0 * (np.arange(count) < right)) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("agreeing", [0.0, 0.5, 1.0])
def test_the_interval_of_two_sides_covers_as_often_as_it_says(agreeing):
    rng = np.random.default_rng(0)
    inside, widths = 0, []
    for _ in range(2000):
        left, other = rng.random((2, 60)) < 0.95
        right = np.where(rng.random(60) < agreeing, left, other)
        low, high = accuracy_interval(50.0 * (left.astype(float) + right))
        inside += low <= 95 <= high
        widths.append(high - low)
    assert 0.93 <= inside / 2000 <= 0.99
    assert min(widths) > 1


def test_one_image_of_two_minds_tells_little():
    low, high = accuracy_interval(np.array([50.0]))
    assert high - low > 80
