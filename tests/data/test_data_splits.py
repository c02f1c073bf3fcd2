import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcnet.data import Images, split_validation
from bcnet.errors import DataError


def numbered(labels):
    """Images whose pixels tell their number."""
    count = len(labels)
    number = torch.arange(count)
    pixels = torch.stack([number % 256, number // 256], dim=1).to(torch.uint8).view(count, 2, 1, 1)
    return Images(pixels, torch.tensor(labels))


def numbers(images):
    return (images.pixels[:, 0, 0, 0].long() + 256 * images.pixels[:, 1, 0, 0].long()).tolist()


class_counts = st.lists(st.integers(2, 40), min_size=1, max_size=6)
fractions = st.floats(0.05, 0.9)


@given(class_counts, fractions, st.integers(0, 10))
def test_splits_are_disjoint_exhaustive_balanced_and_repeatable(counts, fraction, seed):
    images = numbered([label for label, count in enumerate(counts) for _ in range(count)])
    if round(fraction * len(images)) == 0:
        return
    train, validation = split_validation(images, fraction, seed=seed)
    assert sorted(numbers(train) + numbers(validation)) == list(range(len(images)))
    assert numbers(train) == sorted(numbers(train))
    for label, count in enumerate(counts):
        held_out = int((validation.labels == label).sum())
        assert held_out < count
        assert abs(held_out - fraction * count) < 1 + 1e-6 or held_out == count - 1
    again = split_validation(images, fraction, seed=seed)
    assert numbers(again[1]) == numbers(validation)
    assert torch.equal(train.labels, images.labels[numbers(train)])


@given(st.lists(st.integers(20, 60), min_size=1, max_size=6), st.integers(5, 90))
def test_the_validation_part_has_its_exact_size(counts, percent):
    images = numbered([label for label, count in enumerate(counts) for _ in range(count)])
    _, validation = split_validation(images, percent / 100)
    assert len(validation) == round(percent / 100 * len(images))


def test_other_seeds_give_other_splits():
    images = numbered([0, 1] * 100)
    assert numbers(split_validation(images, seed=0)[1]) != numbers(split_validation(images, seed=1)[1])


def test_a_tenth_of_equal_classes_is_a_tenth_of_each():
    _, validation = split_validation(numbered([0, 1, 2, 3, 4] * 50), 0.1)
    assert validation.labels.bincount().tolist() == [5] * 5


def test_far_apart_labels_need_no_memory():
    _, validation = split_validation(numbered([0, 10**15] * 10), 0.1)
    assert sorted(validation.labels.tolist()) == [0, 10**15]


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_fractions_out_of_range(fraction):
    with pytest.raises(DataError, match="between 0 and 1; got"):
        split_validation(numbered([0, 1]), fraction)


def test_classes_of_one_image_leave_none_to_hold_out():
    with pytest.raises(DataError, match=r"got 0\.5 of 3 images in 3 classes"):
        split_validation(numbered([0, 1, 2]), 0.5)
