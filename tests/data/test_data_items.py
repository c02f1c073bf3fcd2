"""Data sets and pairs of loaders as people have them: taken as they come, a part of the training items held out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tiny_job import tiny_search
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, WeightedRandomSampler

from bcnet.data import given_data
from bcnet.data.images import DataSet
from bcnet.data.items import take_items, take_loaders
from bcnet.errors import DataError

COUNT = 60
LABELS = torch.arange(COUNT) % 3
FLOATS = torch.randn(COUNT, 1, 8, 8, generator=torch.Generator().manual_seed(0)) + LABELS[:, None, None, None]
BYTES = torch.randint(256, (COUNT, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


class Made(Dataset):
    """Items that a function makes of their numbers, as torchvision's data sets with a `transform`."""

    def __init__(self, make, count=COUNT, transform=None) -> None:
        self.make, self.count, self.transform = make, count, transform

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index):
        item = self.make(index)
        return item if self.transform is None else (self.transform(item[0]), item[1])


class Passing(IterableDataset):
    def __iter__(self):
        return iter(zip(FLOATS, LABELS, strict=True))


RAW_IMAGES = {
    "bytes": TensorDataset(BYTES, LABELS),
    "byte arrays": Made(lambda i: (BYTES[i].permute(1, 2, 0).numpy(), int(LABELS[i]))),
    "pictures": Made(lambda i: (Image.fromarray(BYTES[i].permute(1, 2, 0).numpy()), int(LABELS[i]))),
    "floats in [0, 1]": TensorDataset(BYTES / 255, LABELS),
    "dicts": Made(lambda i: {"image": BYTES[i], "label": int(LABELS[i])}),
}
OTHERS = {
    "normalised": TensorDataset(FLOATS, LABELS),
    "arrays": Made(lambda i: (FLOATS[i].numpy(), np.int64(LABELS[i]))),
    "two arrays": (FLOATS.numpy(), LABELS.numpy()),
    "two tensors": (FLOATS.double(), LABELS),
    "a list": [(x, int(y)) for x, y in zip(FLOATS, LABELS, strict=True)],
    "dicts": Made(lambda i: {"pixel_values": FLOATS[i], "labels": LABELS[i]}),
    "half precision": TensorDataset(FLOATS.half(), LABELS),
    "numbers as targets": TensorDataset(FLOATS, FLOATS.mean((1, 2, 3))),
    "images as targets": TensorDataset(BYTES / 255, BYTES / 255),
    "a part": Subset(TensorDataset(FLOATS, LABELS), range(COUNT)),
}


@pytest.mark.parametrize("name", RAW_IMAGES)
def test_raw_images_are_normalised_by_us(name) -> None:
    assert isinstance(given_data((RAW_IMAGES[name], RAW_IMAGES[name]), None), DataSet)


@pytest.mark.parametrize("name", OTHERS)
def test_other_items_are_taken_as_they_come(name) -> None:
    data = given_data((OTHERS[name], OTHERS[name]), None)
    whole = next(iter(DataLoader(data.whole.dataset, COUNT, collate_fn=data.whole.collate_fn)))
    inputs, targets = whole.values() if isinstance(whole, dict) else whole
    expected = BYTES / 255 if name == "images as targets" else FLOATS
    assert inputs.dtype == torch.float32
    torch.testing.assert_close(inputs, expected, rtol=1e-3, atol=1e-3)
    assert len(data.held_out[1]) == COUNT // 5
    assert sum(len(y) for _, y in data.test_batches()) == COUNT
    assert targets.dtype in (torch.int64, torch.float32)


@given(st.integers(20, 200), st.integers(2, 5), st.integers(1, 64))
def test_a_fifth_is_held_out_of_every_class_and_final_networks_see_all(count, classes, size) -> None:
    labels = torch.arange(count) % classes
    items = TensorDataset(torch.arange(count)[:, None].float() - 1, labels)
    data = take_items((items, items))
    again = take_items((items, items))
    numbers, held = (part.flatten() for part in data.held_out)
    assert torch.equal(numbers, again.held_out[0].flatten())
    counts = torch.bincount(held, minlength=classes)
    assert counts.sum() == round(count / 5)
    assert counts.max() - counts.min() <= 1
    generator = torch.Generator().manual_seed(0)
    trained, all_trained = (
        torch.cat([x.flatten() for x, _ in batches.epoch(generator)])
        for batches in (data.training_batches(size), data.all_training_batches(size))
    )
    assert not set(trained.tolist()) & set(numbers.tolist())
    assert len(set(all_trained.tolist())) >= count - 1  # a last batch of one item is left out
    assert len(set(trained.tolist())) >= count - len(numbers) - 1
    assert len(data.training_batches(size)) == -(-(count - len(numbers)) // size) - (
        (count - len(numbers)) % size == 1 and count - len(numbers) > size
    )
    assert data.class_names == tuple(map(str, range(classes)))


def test_items_for_validation_are_used_and_all_others_train() -> None:
    parts = [TensorDataset(FLOATS + 10 * number, LABELS) for number in range(3)]
    data = take_items(parts)
    assert not data.holds_out
    torch.testing.assert_close(data.held_out[0], FLOATS + 10)
    assert data.trained_on == COUNT


def test_held_out_items_are_prepared_as_those_of_the_test() -> None:
    train = Made(lambda i: (FLOATS[i], int(LABELS[i])), transform=lambda x: x + torch.rand(()))
    test = Made(lambda i: (FLOATS[i], int(LABELS[i])), transform=lambda x: x * 2)
    data = take_items((train, test))
    held = torch.stack([FLOATS[i] for i in data.validation.dataset.indices])
    torch.testing.assert_close(data.held_out[0], held * 2)
    assert "prepared by the transform of the test items" in data.notes[1]
    assert train.transform(torch.zeros(())) != 0  # the training data are as they were
    halves = (Subset(train, range(0, COUNT, 2)), Subset(test, range(1, COUNT, 2)))
    of_half = take_items(halves)
    held = torch.stack([FLOATS[2 * i] for i in of_half.validation.dataset.indices])
    torch.testing.assert_close(of_half.held_out[0], held * 2)


def test_of_two_loaders_a_fifth_is_held_out_and_batches_stay_theirs() -> None:
    items = TensorDataset(FLOATS, LABELS)

    def collate(pairs):
        inputs, labels = zip(*pairs, strict=True)
        return torch.stack(inputs) * 3, torch.tensor(labels)

    train = DataLoader(items, 16, shuffle=True, collate_fn=collate, drop_last=True)
    data = take_loaders(train, DataLoader(items, 20))
    assert (data.batch_size, data.trained_on, data.holds_out) == (16, None, True)
    (first, _), *others = data.training_batches(999).epoch(torch.Generator().manual_seed(0))
    assert (len(first), len(others)) == (16, 2)
    held = torch.stack([FLOATS[i] for i in data.validation.dataset.indices])
    torch.testing.assert_close(data.held_out[0], held * 3)
    again = take_loaders(train, DataLoader(items, 20))
    batches = [again.all_training_batches(1).epoch(torch.Generator().manual_seed(7)) for _ in range(2)]
    assert all(torch.equal(x, y) for (x, _), (y, _) in zip(*batches, strict=True))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((Made(lambda i: (FLOATS[i], "cat")),) * 2, "targets must be numbers or tensors; got 'cat' for item 0"),
        ((Made(lambda i: (FLOATS[i], 1, i)),) * 2, "got tuple of 3 for item 0"),
        ((Made(lambda i: {"x": FLOATS[i]}),) * 2, "dicts with the target under 'label'"),
        ((Made(lambda i: FLOATS[i]),) * 2, "got Tensor for item 0"),
        ((TensorDataset(FLOATS, LABELS), []), "the test data must have at least one item; got none"),
        ((TensorDataset(FLOATS, LABELS), Passing()), r"list\(data\) makes one"),
        (((FLOATS, LABELS[:5]),) * 2, "equally long; got 60 and 5"),
        ((Made(lambda i: (Image.new("L", (8, 8)), 0.5)),) * 2, "ToTensor makes floats of images"),
    ],
)
def test_other_forms_are_refused(parts, said) -> None:
    with pytest.raises(DataError, match=said):
        given_data(parts, None)


def test_items_of_several_shapes_are_refused() -> None:
    items = Made(lambda i: (torch.randn(1, 8 + i % 2, 8), int(LABELS[i])))
    with pytest.raises(DataError, match=r"got \(1, 8, 8\) and \(1, 9, 8\): crop, resize or pad"):
        list(take_items((items, items)).test_batches())


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Passing(), 16),
        DataLoader(TensorDataset(FLOATS, LABELS), 16, sampler=WeightedRandomSampler([1.0] * COUNT, COUNT)),
        DataLoader(TensorDataset(FLOATS, LABELS), batch_sampler=[[0, 1], [2, 3]]),
    ],
)
def test_loaders_that_choose_their_items_come_in_threes(loader) -> None:
    with pytest.raises(DataError, match="give three, "):
        take_loaders(loader, DataLoader(TensorDataset(FLOATS, LABELS), 20))


class Heights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def test_two_arrays_of_numbers_are_searched_and_copies_of_the_process_change_nothing(tmp_path) -> None:
    given = (FLOATS.numpy(), FLOATS.mean((1, 2, 3)).numpy())
    results = []
    for at_once in (1, 2):
        options = {"threads": 1, "candidate_threads": 1, "at_once": at_once}
        found = tiny_search(
            tmp_path / str(at_once), model=Heights, data=(given, given), task="regression:values=1", options=options
        )
        results.append(found.result.networks)
    assert results[0] == results[1]
    assert results[0]["searched"].test["mae"] >= 0
