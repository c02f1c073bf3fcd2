"""What tasks show of single images: masks and boxes where they are, and words that are true."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcnet.tasks import Classification, DenseRegression, Detection, MultiLabel, Regression, Segmentation
from bcnet.tasks.shown import at_a_size, list_words, name_of, picture_of, with_boxes, with_masks


@given(st.integers(1, 700), st.integers(1, 700))
def test_pictures_have_a_size_to_look_at(height, width):
    found = at_a_size(torch.zeros(1, 3, height, width))
    longest = max(found.shape[-2:])
    assert 128 <= longest <= 256
    assert max(1, round(min(height, width) * longest / max(height, width)) - 1) <= min(found.shape[-2:])
    assert min(found.shape[-2:]) <= round(min(height, width) * longest / max(height, width)) + 1


def test_a_small_picture_keeps_its_pixels():
    values = torch.rand(2, 3, 9, 5, generator=torch.Generator().manual_seed(0))
    found = picture_of(values, 0.0, 1.0)
    assert found.shape == (2, 3, 135, 75)
    torch.testing.assert_close(found[..., 7::15, 7::15], (255 * values).round().to(torch.uint8))


def test_what_is_no_image_has_no_picture():
    assert picture_of(torch.zeros(2, 12, 29)) is None
    grey = picture_of(torch.rand(2, 5, 8, 8))
    assert torch.equal(grey[:, 0], grey[:, 2])


def test_masks_colour_their_pixels_alone():
    pictures = torch.full((1, 3, 8, 8), 200, dtype=torch.uint8)
    masks = torch.tensor([[[0, 1], [2, 0]]])
    found = with_masks(pictures, masks, left_out=(0,))[0]
    darkened = torch.tensor([90, 90, 90], dtype=torch.uint8)[:, None, None]
    assert (found[:, :4, :4] == darkened).all()
    assert (found[:, 4:, 4:] == darkened).all()
    one, two = found[:, 0, 7], found[:, 7, 0]
    assert not torch.equal(one, two)
    assert (found[:, :4, 4:] == one[:, None, None]).all()
    assert (found[:, 4:, :4] == two[:, None, None]).all()


@given(st.integers(0, 10**6))
def test_boxes_change_their_outlines_alone(seed):
    generator = torch.Generator().manual_seed(seed)
    picture = torch.full((3, 64, 96), 7, dtype=torch.uint8)
    low = torch.randint(40, (4, 2), generator=generator)
    boxes = torch.cat([low, low + torch.randint(6, 60, (4, 2), generator=generator)], dim=1).float()
    found = with_boxes(picture, boxes, torch.arange(4))
    changed = (found != picture).any(0)
    near = torch.zeros_like(changed)
    for left, top, right, bottom in boxes.long().tolist():
        right, bottom = min(right, 96), min(bottom, 64)
        near[top:bottom, left:right] = True
    for left, top, right, bottom in boxes.long().tolist():
        right, bottom = min(right, 96), min(bottom, 64)
        assert changed[top, left:right].all()
        assert changed[top:bottom, left].all()
        assert changed[bottom - 1, left:right].all()
        assert changed[top:bottom, right - 1].all()
    assert not (changed & ~near).any()
    assert (picture == 7).all()


def test_words_are_few():
    assert list_words([]) == "none"
    assert list_words(["a", "b", "c", "d"]) == "a, b, c, d"
    assert list_words(["a", "b", "c", "d", "e"]) == "a, b, c, 2 more"
    assert (name_of(1, ("a", "b")), name_of(2, ("a", "b")), name_of(-1, ("a",))) == ("b", "2", "-1")


PICTURES = torch.full((2, 3, 128, 128), 100, dtype=torch.uint8)


def test_classes_labels_and_numbers_are_words():
    labels, logits = torch.tensor([0, 2]), torch.tensor([[5.0, 0, 0], [0, 9, 0]])
    task = Classification()
    assert task.show(PICTURES, labels, names=("cat", "dog", "owl")).words == ("cat", "owl")
    assert task.show(PICTURES, labels, logits).words == ("0 (99%)", "1 (100%)")
    there = torch.tensor([[1.0, 0, 1], [0, 0, 0]])
    assert MultiLabel(3).show(None, there).words == ("0, 2", "none")
    assert MultiLabel(3).show(None, there, 1 - 2 * there, names=("a", "b", "c")).words == ("b", "a, b, c")
    assert Regression().show(None, torch.tensor([1.5, 2])).words == ("1.5", "2")
    assert Regression(2).show(None, torch.zeros(1, 2), torch.tensor([[1 / 3, -2]])).words == ("0.3333, -2",)


def test_masks_are_shown_with_the_share_that_is_right():
    task = Segmentation(3)
    masks = torch.zeros(2, 4, 4, dtype=torch.int64)
    masks[0, 0], masks[1, 0] = 1, 255
    wanted = task.show(PICTURES, masks)
    assert wanted.words == ()
    assert not torch.equal(wanted.pictures[0, :, 0, 0], wanted.pictures[0, :, -1, 0])
    assert (wanted.pictures[1] == wanted.pictures[1, 0, 0, 0]).all()  # what is ignored has no colour
    background = torch.tensor([1.0, 0, 0])[None, :, None, None].expand(2, 3, 4, 4)
    found = task.show(PICTURES, masks, background)
    assert found.words == ("75.0% of pixels", "100.0% of pixels")
    assert task.show(None, masks).pictures is None


def test_images_are_shown_between_what_was_wanted():
    wanted = torch.tensor([0.0, 2.0])[:, None, None, None].expand(2, 3, 4, 4)
    found = DenseRegression(peak=2.0).show(None, wanted, wanted + 0.2)
    assert found.words == ("20.00 dB", "20.00 dB")
    assert found.pictures[0, 0, 0, 0] == round(0.1 * 255)
    assert found.pictures[1, 0, 0, 0] == 255
    assert DenseRegression().show(None, wanted).pictures[1, 0, 0, 0] == 255


@pytest.mark.parametrize("with_pictures", [True, False])
def test_boxes_are_shown_that_are_more_likely_than_not(with_pictures):
    task = Detection(classes=3, height=32, width=32)
    targets = {"boxes": torch.tensor([[[8.0, 8, 16, 24]], [[0, 0, 0, 0]]]), "labels": torch.tensor([[1], [-1]])}
    outputs = torch.full((2, 7, 8, 8), -5.0)
    outputs[0, 2, 4, 3], outputs[1, 0, 4, 3] = 3.0, -0.1
    outputs[:, 3:] = torch.tensor([2.0, 2, 0, 0])[:, None, None]
    pictures = PICTURES if with_pictures else None
    wanted, found = task.show(pictures, targets), task.show(pictures, targets, outputs, names=("a", "b", "c"))
    assert wanted.words == ("1", "no box")
    assert found.words == ("c", "no box")
    if with_pictures:
        assert (wanted.pictures[0, :, 32, 32:64] != 100).any(0).all()
        assert torch.equal(wanted.pictures[1], PICTURES[1])
        assert torch.equal(found.pictures[1], PICTURES[1])
        assert not torch.equal(found.pictures[0], PICTURES[0])
