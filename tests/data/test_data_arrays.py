"""Data sets in .npz files, whatever their arrays are called and however they are laid out."""

import numpy as np
import pytest
import torch

from bcnet.data import load
from bcnet.errors import DataError

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(256, size=(12, 8, 6, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]
NUMBERS = np.arange(12) % 3


def written(path, **arrays):
    np.savez(path / "set.npz", **arrays)
    return f"npz:{path / 'set.npz'}"


@pytest.mark.parametrize(
    "names",
    [
        ("x_train", "y_train", "x_test", "y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
        ("X_Train", "Y_Train", "X_Test", "Y_Test"),
        ("images.train", "targets.train", "images.valid", "targets.valid"),
    ],
)
def test_arrays_are_known_by_their_names(tmp_path, names):
    data = load(written(tmp_path, **dict(zip(names, (COLOUR[:9], NUMBERS[:9], COLOUR[9:], NUMBERS[9:]), strict=True))))
    assert torch.equal(data.train.pixels, torch.from_numpy(COLOUR[:9]).permute(0, 3, 1, 2))
    assert data.test.labels.tolist() == NUMBERS[9:].tolist()
    assert data.class_names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (COLOUR.transpose(0, 3, 1, 2), COLOUR.transpose(0, 3, 1, 2)),
        (GREY, GREY[:, None]),
        (GREY[..., None], GREY[:, None]),
        ((COLOUR / 255).astype(np.float32), COLOUR.transpose(0, 3, 1, 2)),
        ((GREY / 255), GREY[:, None]),
        ((COLOUR / 255).transpose(0, 3, 1, 2), COLOUR.transpose(0, 3, 1, 2)),
    ],
)
def test_images_of_any_layout_are_the_same_bytes(tmp_path, images, expected):
    data = load(written(tmp_path, x_train=images, y_train=NUMBERS, x_test=images, y_test=NUMBERS[:, None]))
    assert torch.equal(data.train.pixels, torch.from_numpy(np.ascontiguousarray(expected)))
    assert data.test.labels.tolist() == NUMBERS.tolist()


def test_a_validation_part_scores_and_others_stay_unread(tmp_path):
    arrays = {f"{split}_images": COLOUR for split in ("train", "val", "test")}
    arrays |= {f"{split}_labels": NUMBERS for split in ("train", "val", "test")}
    data = load(written(tmp_path, **arrays, subject=NUMBERS))
    assert {part: len(images) for part, images in data.parts.items()} == {"training": 12, "validation": 12, "test": 12}
    assert data.notes[0].endswith("left unread: subject.")


def test_without_a_test_part_a_fifth_is_held_out(tmp_path):
    for words in (np.array(["cat", "dog", "cow"]), np.array([b"cat", b"dog", b"cow"])):
        data = load(written(tmp_path, images=COLOUR, labels=words[NUMBERS]))
        assert (len(data.train), len(data.test)) == (10, 2)
        assert data.class_names == ("cat", "cow", "dog")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": COLOUR, "b": NUMBERS}, "takes arrays called x_train.*; got a, b in .*: rename yours"),
        ({"x_train": COLOUR}, "takes arrays called x_train.*; got x_train in"),
        ({"x_test": COLOUR, "y_test": NUMBERS}, "takes arrays called x_train.*; got the splits test in"),
        ({"x": COLOUR, "images": COLOUR, "y": NUMBERS}, "got two of images, x and images"),
        (
            {"x": COLOUR.astype(np.int32), "y": NUMBERS},
            "images must be bytes, or floats in .*; got int32 for npz",
        ),
        (
            {"x": COLOUR * 1.0, "y": NUMBERS},
            "floats of images must be in .0, 1.; got 0 to 249 for npz:.*, train: image 0",
        ),
        (
            {"x": COLOUR[:, :, 0], "y": NUMBERS[:5]},
            r"there must be one label for each image, .*; got \(5,\) for 12 images",
        ),
        (
            {"x": COLOUR, "y": np.eye(3)[NUMBERS]},
            r"there must be one label for each image, .*; got \(12, 3\) for 12 images",
        ),
        (
            {"x": COLOUR, "y": NUMBERS / 2},
            "labels must be integers, .* or words; got 0.0 for npz:.*, training: image 0",
        ),
        ({"x": COLOUR.reshape(12, -1), "y": NUMBERS}, r"images must be arrays .*; got \(12, 144\) for npz:.*, train"),
        ({"x": COLOUR, "y": NUMBERS.astype(object)}, "could not be read: Object arrays cannot be loaded"),
    ],
)
def test_arrays_that_do_not_do(tmp_path, arrays, message):
    with pytest.raises(DataError, match=message):
        load(written(tmp_path, **arrays))


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 broken"])
def test_files_that_are_none(tmp_path, content):
    (tmp_path / "set.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"npz:PATH takes an .npz file of arrays of numbers; .*could not be read"):
        load(f"npz:{tmp_path / 'set.npz'}")
    with pytest.raises(DataError, match=r"'/no/such.npz' could not be read"):
        load("npz:/no/such.npz")


def test_a_bare_path_is_told_its_form(tmp_path):
    name = written(tmp_path, x=COLOUR, y=NUMBERS)
    with pytest.raises(DataError, match=rf"such a file is {name}"):
        load(name.removeprefix("npz:"))
