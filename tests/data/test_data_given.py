"""Data sets without a part for the test, and parts by name: what people pass first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_job import tiny_search
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, WeightedRandomSampler

import bcnet
from bcnet.data import DataSet, Loaders, given_data
from bcnet.data.conversion import channel_axis
from bcnet.errors import DataError, RecipeError

COUNT = 60
LABELS = torch.arange(COUNT) % 3
NUMBERS = torch.arange(COUNT, dtype=torch.float32).reshape(-1, 1, 1, 1).expand(-1, 1, 4, 4) + 0.5
NUMBERS[:, :, 1:] = -1  # no image
BYTES = torch.arange(COUNT, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 3, 8, 8).clone()

ALONE = {
    "two tensors": lambda x, y: (x, y),
    "a list of two": lambda x, y: [x, y],
    "arrays": lambda x, y: (x.numpy(), y.numpy()),
    "labels in a list": lambda x, y: (x.numpy(), y.tolist()),
    "lists of tensors": lambda x, y: ([*x], [*y]),
    "lists of arrays": lambda x, y: ([*x.numpy()], [*y.numpy()]),
    "a data set": lambda x, y: TensorDataset(x, y),
    "a part of one": lambda x, y: Subset(TensorDataset(x, y), range(len(x))),
    "pairs": lambda x, y: list(zip(x, y.tolist(), strict=True)),
    "pictures": lambda x, y: [
        (Image.fromarray(a.permute(1, 2, 0).numpy()), b) for a, b in zip(x, y.tolist(), strict=True)
    ],
    "a data set of pictures": lambda x, y: Subset(ALONE["pictures"](x, y), range(len(x))),
    "in a mapping": lambda x, y: {"train": (x, y)},
    "a loader": lambda x, y: DataLoader(TensorDataset(x, y), 16, shuffle=True),
}


def items_of(batches) -> list[int]:
    return sorted(int(number) for x, *_ in batches for number in x.flatten(1)[:, 0])


@pytest.mark.parametrize("name", [name for name in ALONE if "pictures" not in name])
def test_of_data_without_a_test_a_fixed_fifth_is_held_out(name) -> None:
    data = given_data(ALONE[name](NUMBERS, LABELS), None)
    assert isinstance(data, Loaders)
    test, scoring, whole = (items_of(batches) for batches in (data.test, data.validation, data.whole))
    assert sorted(test + whole) == list(range(COUNT))
    assert len(test) == 12
    assert torch.bincount(LABELS[test]).tolist() == [4, 4, 4]
    assert set(scoring) < set(whole)
    assert data.notes[0] == ("There are no test data: a fixed fifth of the items is held out for the test, 12 of 60.")
    again = given_data(ALONE[name](NUMBERS, LABELS), None)
    assert items_of(again.test) == test
    if name == "a loader":
        assert data.batch_size == 16


@pytest.mark.parametrize(
    "name", ["two tensors", "a data set", "pairs", "in a mapping", "pictures", "a data set of pictures"]
)
def test_raw_images_without_a_test_are_normalised_by_us(name) -> None:
    data = given_data(ALONE[name](BYTES, LABELS), None)
    assert isinstance(data, DataSet)
    assert sorted(int(x[0, 0, 0]) for part in (data.train, data.test) for x in part.pixels) == list(range(COUNT))
    assert (len(data.train), len(data.test)) == (48, 12)
    assert data.notes[0].startswith("There are no test data: a fixed fifth")


@pytest.mark.parametrize("form", [list, np.array, lambda words: np.array(words, dtype=object)])
@pytest.mark.parametrize("inputs", [NUMBERS, BYTES.numpy()])
def test_words_as_labels_are_numbered_alphabetically(form, inputs) -> None:
    words = [("cat", "ant", "bee")[label] for label in LABELS.tolist()]
    parts = {"train": (inputs[:40], form(words[:40])), "test": (inputs[40:], form(words[40:]))}
    for data in (given_data(parts, None), given_data((inputs, form(words)), None)):
        assert tuple(data.class_names) == ("ant", "bee", "cat")
    tested = given_data(parts, None)
    labels = tested.test.labels if isinstance(tested, DataSet) else torch.cat([y for _, y in tested.test])
    assert labels.tolist() == [("ant", "bee", "cat").index(word) for word in words[40:]]
    with pytest.raises(DataError, match="all images must be of the classes of training; got 'dog'"):
        given_data({**parts, "test": (inputs[40:], form(["dog"] * 20))}, None)


@pytest.mark.parametrize(("count", "classes"), [(20, 4), (60, 20), (100, 20), (100, 50)])
def test_a_few_images_of_each_class_are_enough(count, classes) -> None:
    data = given_data((torch.randn(count, 3, 8, 8), torch.arange(count) % classes), None)
    scoring, fresh = data.split(0.5, seed=0)
    assert {len(scoring[1]), len(fresh[1])} == {len(data.held_out[1]) // 2, -(-len(data.held_out[1]) // 2)}


def test_pictures_of_several_sizes_are_resized() -> None:
    pictures = [(Image.new("L", (8 + i % 3, 8)), i % 3) for i in range(COUNT)]
    with pytest.raises(DataError, match=r"images must have one size; got 8x8 and, .*: give image_size"):
        given_data(pictures, None)
    assert given_data(pictures, 8).image_shape == (1, 8, 8)


class Named(torch.utils.data.Dataset):
    """Images of a folder, as torchvision has them."""

    classes = ("ant", "bee", "cat")

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index):
        return BYTES[index], int(LABELS[index])


@pytest.mark.parametrize("part", [Named(), Subset(Named(), range(30)), (Subset(Named(), range(30)), Named())])
def test_names_of_classes_are_those_of_the_whole(part) -> None:
    assert given_data(part, None).class_names == ("ant", "bee", "cat")


def test_raw_images_in_two_pairs_of_arrays_are_normalised_by_us() -> None:
    pair = (BYTES.permute(0, 2, 3, 1).numpy(), LABELS.numpy())
    data = given_data((pair, pair), None)
    assert isinstance(data, DataSet)
    assert data.image_shape == (3, 8, 8)
    assert torch.equal(data.test.pixels, BYTES)


@pytest.mark.parametrize("labels", [torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.clone])
@pytest.mark.parametrize("make", [torch.Tensor.numpy, torch.Tensor.clone])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1)])
def test_channels_of_bytes_come_first_or_last(order, make, labels) -> None:
    images = BYTES + torch.arange(8, dtype=torch.uint8)
    data = given_data([(make(images.permute(*order)), labels(LABELS))] * 2, None)
    assert torch.equal(data.test.pixels, images)
    assert torch.equal(data.test.labels, LABELS)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((9, 3, 8, 8), 1),
        ((9, 8, 8, 3), 3),
        ((9, 3, 8, 4), 1),  # four pixels wide
        ((9, 4, 8, 8), 1),
        ((9, 3, 8, 3), 3),
        ((9, 8, 8, 8), None),
        ((9, 3, 8), None),
    ],
)
def test_the_axis_of_channels(shape, axis) -> None:
    assert channel_axis(shape) == axis


@pytest.mark.parametrize("make", [torch.Tensor.numpy, torch.Tensor.clone])
def test_bytes_without_channels_are_grey(make) -> None:
    data = given_data([(make(BYTES[:, 0]), LABELS)] * 2, None)
    assert torch.equal(data.test.pixels, BYTES[:, :1])


def test_tensors_stay_in_memory() -> None:
    assert given_data((NUMBERS, LABELS), None).in_memory
    assert not given_data(ALONE["a loader"](NUMBERS, LABELS), None).in_memory


@pytest.mark.parametrize("named", [False, True])
def test_several_inputs_are_arrays_in_a_tuple_or_a_dict(named) -> None:
    arrays = {"image": NUMBERS.numpy(), "row": torch.arange(COUNT).float()[:, None]}
    inputs = arrays if named else tuple(arrays.values())
    data = given_data(((inputs, LABELS), (inputs, LABELS.tolist())), None)
    assert isinstance(data, Loaders)
    for batches in (data.train, data.validation, data.test):
        for x, y in batches:
            image, row = x.values() if named else x
            torch.testing.assert_close(image[:, 0, 0, 0], row[:, 0] + 0.5)
            assert torch.equal(y, LABELS[row[:, 0].long()])
    with pytest.raises(DataError, match="must be equally long; got 60 and 60 and 50: leave out"):
        given_data(((inputs, LABELS[:50]), (inputs, LABELS)), None)


@pytest.mark.parametrize("names", [("train", "test"), ("Training", "val"), ("test", "validation", "train")])
def test_parts_by_name_are_those_parts(names) -> None:
    cuts = {name: slice(20 * place, 20 * place + 20) for place, name in enumerate(names)}
    data = given_data({name: (NUMBERS[cut], LABELS[cut]) for name, cut in cuts.items()}, None)
    test = "test" if "test" in names else "val"
    assert items_of(data.test) == [*range(COUNT)][cuts[test]]
    if len(names) == 3:
        assert items_of(data.validation) == [*range(COUNT)][cuts["validation"]]
        assert items_of(data.train) == [*range(COUNT)][cuts["train"]]


class Passing(IterableDataset):
    def __iter__(self):
        return iter(zip(NUMBERS, LABELS, strict=True))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((NUMBERS, LABELS[:50]), "arrays of inputs and targets must be equally long; got 60 and 50"),
        (Passing(), "the given data must be a data set with a length and items by number; got Passing"),
        (
            DataLoader(TensorDataset(NUMBERS, LABELS), 16, sampler=WeightedRandomSampler([1.0] * COUNT, COUNT)),
            "needs no sampler of its own; got WeightedRandomSampler: give two, ",
        ),
        ({"x": NUMBERS, "y": LABELS}, "data in a mapping must have a part 'train'; got 'x', 'y'"),
        ({}, "data in a mapping must have a part 'train'; got nothing"),
        (NUMBERS, "data must be a name, .*; got Tensor"),
        ((NUMBERS, LABELS, 3), r"of which a fifth is held out for the test, .*; got \(Tensor, Tensor, int\)"),
        (None, "data must be a name, .*; got NoneType"),
        (Path("pictures"), "begins with their kind, such as 'imagefolder:pictures'.*; got PosixPath: pictures"),
        ((NUMBERS[:2], LABELS[:2]), "holding out needs at least one image"),
    ],
)
def test_data_of_another_form_are_refused_with_what_to_give(data, said) -> None:
    with pytest.raises(DataError, match=said):
        given_data(data, None)


def test_a_pair_of_arrays_is_searched(tmp_path) -> None:
    x = np.random.default_rng(0).normal(size=(COUNT, 1, 8, 8)).astype(np.float32)
    outcome = tiny_search(tmp_path, method="uniform", data=(x, LABELS.tolist()), epochs=1)
    assert outcome.result.networks["searched"].test_images == 12


def test_epochs_that_are_given_twice_agree(tmp_path) -> None:
    budget = bcnet.Budget(macs=0.5)
    with pytest.raises(RecipeError, match=r"epochs must be given once; got epochs=2 and training's 3: leave one out"):
        bcnet.search("resnet_digits", "digits", budget, tmp_path / "run", training={"epochs": 3}, epochs=2)
    assert not (tmp_path / "run").exists()
