import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stand_in_device import DEVICE, stand_in

from bcnet.data import Augmentation, Images, Normaliser, TrainingBatches, all_batches, fixed_batches, usual_augmentation
from bcnet.errors import DataError

IDENTITY = Normaliser((0.0,), (1 / 255,))  # floats equal to the bytes


def images(count, size=1):
    pixels = torch.arange(count, dtype=torch.uint8).view(count, 1, 1, 1).expand(count, 1, size, size).contiguous()
    return Images(pixels, torch.arange(count) % 2)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def ids(batches):
    return [int(value) for x, _ in batches for value in x[:, 0, 0, 0].round()]


@given(st.integers(1, 60), st.integers(1, 60))
def test_an_epoch_shows_whole_batches_of_distinct_images(count, batch_size):
    if batch_size > count:
        return
    batches = TrainingBatches(images(count), batch_size, IDENTITY, Augmentation())
    epoch = list(batches.epoch(seeded(0)))
    assert len(epoch) == len(batches) == count // batch_size
    assert all(x.shape == (batch_size, 1, 1, 1) and y.shape == (batch_size,) for x, y in epoch)
    assert len(set(ids(epoch))) == len(ids(epoch))
    for x, y in epoch:
        assert (x[:, 0, 0, 0].round().long() % 2 == y).all()


def test_an_epoch_is_a_function_of_its_generator():
    batches = TrainingBatches(images(50, size=8), 16, IDENTITY, Augmentation(padding=2, flip=True))
    first, again, other = (list(batches.epoch(seeded(seed))) for seed in (0, 0, 1))
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], other[0][0])


def test_global_randomness_is_neither_used_nor_changed():
    state = torch.get_rng_state()
    list(TrainingBatches(images(20, size=4), 5, IDENTITY, Augmentation(1, True)).epoch(seeded(0)))
    fixed_batches(images(20), 5, IDENTITY)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("where", ["cpu", DEVICE])
def test_batches_come_out_on_the_device_without_waiting_for_it(where):
    with stand_in() as waits:
        source = images(20, size=4).to(where)
        waits.clear()
        for made in (
            TrainingBatches(source, 5, IDENTITY, Augmentation(1, True), device=DEVICE).epoch(seeded(0)),
            fixed_batches(source, 5, IDENTITY, device=DEVICE),
            all_batches(source, 5, IDENTITY, device=DEVICE),
        ):
            assert {(x.device, y.device) for x, y in made} == {(DEVICE, DEVICE)}
    assert waits == []


def test_fixed_batches_are_equal_shuffled_and_repeatable():
    source = Images(torch.arange(100, dtype=torch.uint8).view(-1, 1, 1, 1), torch.arange(100) // 50)
    batches = fixed_batches(source, 30, IDENTITY)
    assert [len(y) for _, y in batches] == [30, 30, 30]
    assert all(0 < y.sum() < 30 for _, y in batches), "every batch has both classes"
    assert ids(batches) == ids(fixed_batches(source, 30, IDENTITY))
    assert ids(batches) != ids(fixed_batches(source, 30, IDENTITY, seed=1))


@given(st.integers(1, 40), st.integers(1, 60))
def test_all_batches_show_every_image_once_in_order(count, batch_size):
    assert ids(all_batches(images(count), batch_size, IDENTITY)) == list(range(count))


@pytest.mark.parametrize(
    "make",
    [
        lambda size: TrainingBatches(images(10), size, IDENTITY, Augmentation()),
        lambda size: fixed_batches(images(10), size, IDENTITY),
    ],
)
def test_batch_sizes_that_do_not_do(make):
    with pytest.raises(DataError, match="at most the number of images, 10 here; got 11"):
        make(11)
    with pytest.raises(DataError, match="at least 1; got 0"):
        make(0)


def test_all_batches_refuse_empty_batches():
    with pytest.raises(DataError, match="at least 1; got 0"):
        all_batches(images(10), 0, IDENTITY)


@given(st.integers(0, 3), st.booleans(), st.integers(1, 6), st.integers(1, 6), st.integers(0, 100))
def test_augmented_images_are_crops_of_the_padded_ones(padding, flip, height, width, seed):
    pixels = torch.randint(1, 256, (4, 2, height, width), generator=seeded(seed), dtype=torch.uint8)
    result = Augmentation(padding, flip)(pixels, seeded(seed))
    assert result.shape == pixels.shape
    for before, after in zip(pixels, result, strict=True):
        assert any(torch.equal(crop, after) for crop in possible_crops(before, padding, flip))


def possible_crops(image, padding, flip):
    """Every crop of the padded image, and every crop of it mirrored, one after the other."""
    _, height, width = image.shape
    for version in [image, image.flip(2)] if flip else [image]:
        padded = torch.nn.functional.pad(version, (padding,) * 4)
        for row in range(2 * padding + 1):
            for column in range(2 * padding + 1):
                yield padded[:, row : row + height, column : column + width]


def test_every_crop_and_flip_is_as_likely():
    pixels = torch.arange(1, 5, dtype=torch.uint8).view(1, 1, 2, 2).expand(18_000, 1, 2, 2)
    kinds, counts = Augmentation(1, True)(pixels, seeded(0)).flatten(1).unique(dim=0, return_counts=True)
    assert len(kinds) == 3 * 3 * 2
    assert counts.min() > 850
    assert counts.max() < 1_150


def test_every_image_of_a_batch_is_moved_on_its_own():
    pixels = torch.randint(256, (1, 1, 8, 8), generator=seeded(0), dtype=torch.uint8).expand(64, 1, 8, 8)
    assert len(Augmentation(2, True)(pixels, seeded(0)).flatten(1).unique(dim=0)) > 20


def test_usual_augmentations():
    assert usual_augmentation((3, 32, 32)) == Augmentation(padding=4, flip=True)
    assert usual_augmentation((1, 8, 8)) == Augmentation(padding=1, flip=False)


@pytest.mark.parametrize("padding", [-1, 0.5, True])
def test_paddings_that_do_not_do(padding):
    with pytest.raises(DataError, match="an int of at least 0; got"):
        Augmentation(padding=padding)
