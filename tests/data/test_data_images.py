import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bcnet.data import Augmentation, DataSet, Images, Normaliser
from bcnet.errors import DataError


def random_images(count, classes=3, shape=(3, 8, 8), seed=0):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, *shape), generator=generator, dtype=torch.uint8)
    return pixels, torch.arange(count) % classes


@pytest.mark.parametrize(
    ("pixels", "labels", "message"),
    [
        (
            torch.zeros(4, 3, 8, 8),
            torch.zeros(4).long(),
            "pixels must be a torch.uint8 tensor.*got torch.float32 of shape",
        ),
        (torch.zeros(4, 8, 8).byte(), torch.zeros(4).long(), r"shape \(n, C, H, W\); got torch.uint8 of shape \(4, 8"),
        (np.zeros((4, 3, 8, 8)), torch.zeros(4).long(), "pixels must be a torch.uint8 tensor.*got ndarray"),
        (torch.zeros(4, 3, 8, 8).byte(), torch.zeros(4), "labels must be a torch.int64 tensor.*got torch.float32"),
        (torch.zeros(4, 3, 8, 8).byte(), torch.zeros(4, 1).long(), r"labels must be .* of shape \(n,\); got"),
        (torch.zeros(4, 3, 8, 8).byte(), torch.zeros(3).long(), "one label; got 4 images and 3 labels"),
        (torch.zeros(0, 3, 8, 8).byte(), torch.zeros(0).long(), "must hold at least one; got none"),
        (torch.zeros(2, 3, 8, 8).byte(), torch.tensor([0, -1]), "from 0; got -1"),
    ],
)
def test_images_check_what_they_are_given(pixels, labels, message):
    with pytest.raises(DataError, match=message):
        Images(pixels, labels)


def test_subset_takes_indices_in_order():
    images = Images(*random_images(6))
    part = images.subset([5, 0])
    assert torch.equal(part.pixels, images.pixels[[5, 0]])
    assert part.labels.tolist() == [2, 0]
    with pytest.raises(DataError, match="from 0 to 5; got some from 0 to 6"):
        images.subset(torch.tensor([0, 6]))
    with pytest.raises(DataError, match="at least one"):
        images.subset([])


def test_normalised_training_images_have_zero_mean_and_unit_variance():
    images = Images(*random_images(50))
    x = Normaliser.of(images)(images.pixels)
    assert x.dtype == torch.float32
    assert x.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.var((0, 2, 3), correction=0), torch.ones(3), atol=1e-4, rtol=0)


def test_the_normaliser_is_that_of_the_values_over_255():
    pixels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    normaliser = Normaliser.of(Images(pixels, torch.tensor([0, 1])))
    assert normaliser.mean == pytest.approx((0.5,))
    assert normaliser.std == pytest.approx((0.5,))
    assert normaliser(pixels).flatten().tolist() == pytest.approx([-1, 1])


def test_a_constant_channel_is_only_centred():
    images = Images(torch.full((4, 1, 2, 2), 7, dtype=torch.uint8), torch.zeros(4).long())
    assert Normaliser.of(images)(images.pixels).abs().max() < 1e-6


def test_a_data_set_of_tensors():
    data = DataSet.from_tensors(random_images(12), random_images(6, seed=1))
    assert (data.num_classes, data.class_names, data.image_shape) == (3, ("0", "1", "2"), (3, 8, 8))
    assert data.augmentation == Augmentation(padding=1, flip=True)
    assert data.normaliser == Normaliser.of(data.train)
    assert dataclasses.replace(data, augmentation=Augmentation()).augmentation == Augmentation()
    assert data.to("cpu").train.pixels.device.type == "cpu"


def test_labels_of_any_integer_type_do():
    pixels, labels = random_images(6)
    assert DataSet.from_tensors((pixels, labels.int()), (pixels, labels.byte())).train.labels.dtype == torch.int64
    with pytest.raises(DataError, match=r"labels must be integers.*got torch\.float32"):
        DataSet.from_tensors((pixels, labels.float()), (pixels, labels))


@pytest.mark.parametrize(
    ("train", "test", "settings", "message"),
    [
        (random_images(6), random_images(6, shape=(3, 4, 4)), {}, "have one shape; got .*give image_size"),
        (random_images(6), random_images(6, classes=4), {}, "from 0 to 2 for its 3 classes; got 3 among the test"),
        (random_images(6), random_images(6), {"class_names": "ab"}, "from 0 to 1 .* got 2 among the training"),
        (
            random_images(6),
            random_images(6),
            {"class_names": "abcd"},
            "must have training images; got none for d: leave",
        ),
        ((random_images(6)[0], torch.full((6,), 10**12)), random_images(6), {}, "without a gap; got 1000000000000"),
    ],
)
def test_data_sets_check_that_their_parts_agree(train, test, settings, message):
    with pytest.raises(DataError, match=message):
        DataSet.from_tensors(train, test, **settings)


class Pairs(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index % len(self.images)], self.labels[index]


@pytest.mark.parametrize("kind", ["bytes", "floats", "arrays", "pil", "loader"])
def test_a_data_set_of_torch_data_sets_has_the_same_bytes(kind):
    pixels, labels = random_images(7)
    source = {
        "bytes": lambda: Pairs(pixels, labels),
        "floats": lambda: TensorDataset(pixels / 255, labels),
        "arrays": lambda: Pairs([p.permute(1, 2, 0).numpy() for p in pixels], labels.tolist()),
        "pil": lambda: Pairs([Image.fromarray(p.permute(1, 2, 0).numpy()) for p in pixels], labels.numpy()),
        "loader": lambda: DataLoader(TensorDataset(pixels / 255, labels), batch_size=3),
    }[kind]()
    data = DataSet.from_datasets(source, source)
    assert torch.equal(data.train.pixels, pixels)
    assert data.test.labels.tolist() == labels.tolist()


def test_grey_tensors_stay_grey_and_are_resized():
    pixels, labels = random_images(6, shape=(1, 8, 8))
    source = Pairs(pixels, labels)
    assert DataSet.from_datasets(source, source).image_shape == (1, 8, 8)
    assert DataSet.from_datasets(source, source, image_size=5).image_shape == (1, 5, 5)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (
            [(torch.full((3, 4, 4), 2.0), 0)],
            r"floats of images must be in \[0, 1\]; got 2 to 2 .*leave the normalisation",
        ),
        ([(torch.zeros(3, 4, 4, dtype=torch.int32), 0)], "got torch.int32 for mine, train: image 0"),
        ([(torch.zeros(5, 4, 4), 0)], r"with 1 or 3 channels; got ndarray of shape \(4, 4, 5\)"),
        ([("a path", 0)], "images must be PIL images.*got str for mine, train: image 0"),
        ([(torch.zeros(3, 4, 4), 0.5)], "labels must be integers.*got 0.5 for mine, train: image 0"),
        ([(torch.zeros(3, 4, 4), -1)], "labels must be integers.*got -1"),
        ([torch.zeros(3, 4, 4)], "pairs of image and label; got Tensor"),
        ([(torch.zeros(3, 4, 4), 0), (torch.zeros(3, 5, 4), 0)], "got 4x4 and, for mine, train: image 1, 4x5: give"),
        ([], "at least one; got none"),
        (DataLoader([(torch.zeros(3, 4, 4), 0)] * 5, shuffle=True), "got one that shuffles: give it shuffle=False"),
        (DataLoader([torch.zeros(3, 4, 4)] * 5, batch_size=5), "pairs of images and as many labels; got Tensor"),
    ],
)
def test_items_that_do_not_do(items, message):
    with pytest.raises(DataError, match=message):
        DataSet.from_datasets(items, items, name="mine")


class Broken(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        if index == 3:
            raise OSError("photo_3.png is truncated")
        return Image.new("L", (8, 8)), index % 2


@pytest.mark.parametrize(
    ("source", "place"),
    [
        (Broken(), "image 3"),
        (
            DataLoader(Broken(), 2, collate_fn=lambda pairs: list(zip(*pairs, strict=True))),
            "the batch that begins with image 2",
        ),
    ],
)
def test_an_item_that_cannot_be_read_is_named(source, place):
    with pytest.raises(DataError, match=f"mine, train failed at {place}: OSError: photo_3.png is truncated: fix"):
        DataSet.from_datasets(source, source, name="mine")


def test_one_class_is_refused():
    pixels, labels = random_images(6, classes=1)
    with pytest.raises(DataError, match="at least two classes; got one, label 0, for all of 'mine'"):
        DataSet.from_tensors((pixels, labels), (pixels, labels), name="mine")
