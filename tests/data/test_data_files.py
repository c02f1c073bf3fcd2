"""Images that stay in their files: an ImageNet-shaped folder of a few tiny photographs."""

import io
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from photographs import CLASSES, photographs
from PIL import Image, ImageOps

from bcnet.data import (
    FilePixels,
    ResizedCrop,
    TrainingBatches,
    all_batches,
    files,
    fixed_batches,
    folders,
    load,
    split_validation,
)
from bcnet.data.decoding import decode, decode_all
from bcnet.errors import DataError
from bcnet.methods import Uniform
from bcnet.run.parts import cut_data
from bcnet.run.settings import make_settings


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory):
    return load(f"imagenet:{photographs(tmp_path_factory.mktemp('imagenet'))}", image_size=16)


def epoch(data, workers, seed=3):
    images = replace(data.train, pixels=replace(data.train.pixels, workers=workers))
    batches = TrainingBatches(images, 6, data.normaliser, data.augmentation)
    return list(batches.epoch(torch.Generator().manual_seed(seed)))


def test_a_folder_of_the_shape_of_imagenet_is_left_in_its_files(imagenet):
    assert isinstance(imagenet.train.pixels, FilePixels)
    assert (len(imagenet.train), len(imagenet.test)) == (24, 9)
    assert imagenet.image_shape == (3, 16, 16)
    assert imagenet.class_names == CLASSES
    assert imagenet.normaliser.mean == (0.485, 0.456, 0.406)
    assert isinstance(imagenet.augmentation, ResizedCrop)


def test_an_epoch_has_every_image_once_with_its_label(imagenet):
    x, y = (torch.cat(parts) for parts in zip(*epoch(imagenet, workers=0), strict=True))
    assert (x.shape, x.dtype) == ((24, 3, 16, 16), torch.float32)
    assert torch.bincount(y).tolist() == [8, 8, 8]
    assert torch.equal(x.mean((2, 3)).argmax(1), y)  # each class has a colour of its own


def test_as_many_processes_decode_as_there_are_cores_to_use(monkeypatch):
    for cores, workers in (({3}, 1), (set(range(5)), 5), (set(range(64)), 8)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: cores, raising=False)
        assert FilePixels(files=(), size=16).workers == workers


@pytest.mark.parametrize(("batches", "expected"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (100, 2)])
def test_workers_have_room_in_shared_memory_or_are_not_started(imagenet, monkeypatch, batches, expected):
    """Two batches for each worker and one that is read: a container has 64 MiB of shared memory, often."""
    started = []
    plain = files.DataLoader

    def loader(*args, **options):
        started.append(options["num_workers"])
        return plain(*args, **options)

    monkeypatch.setattr(files, "DataLoader", loader)
    room = SimpleNamespace(free=batches * 6 * 3 * 16 * 16)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: room)
    assert len(epoch(imagenet, workers=2)) == 4
    assert started == [expected]


def test_workers_that_are_killed_end_in_a_message_with_the_way_out(imagenet, monkeypatch):
    run = os.getpid()

    def decode(*args):
        assert os.getpid() != run
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(files, "decode", decode)
    with pytest.raises(DataError, match=r"2 processes that decode images .* \(--workers 0\)"):
        epoch(imagenet, workers=2)


def test_a_fault_in_the_runs_own_process_is_not_blamed_on_workers(imagenet, monkeypatch):
    def decode(*args):
        raise RuntimeError("no memory")

    monkeypatch.setattr(files, "decode", decode)
    with pytest.raises(RuntimeError, match=r"^no memory$"):
        epoch(imagenet, workers=0)


def test_a_run_decodes_with_as_many_processes_as_it_is_told(imagenet):
    settings = make_settings(
        model="x",
        data="y",
        method=Uniform(),
        training={"lr": 0.1, "batch_size": 6, "epochs": 1},
        options={"workers": 0},
    ).resolve()
    parts = cut_data(imagenet, settings)
    assert parts.all_training.images.pixels.workers == 0


def test_an_epoch_depends_on_its_seed_and_on_nothing_else(imagenet):
    torch.manual_seed(1)
    first = epoch(imagenet, workers=0)
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    again, by_others = epoch(imagenet, workers=0), epoch(imagenet, workers=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    for (x, y), *rest in zip(first, again, by_others, strict=True):
        for other_x, other_y in rest:
            assert torch.equal(x, other_x)
            assert torch.equal(y, other_y)
    assert not torch.equal(first[0][0], epoch(imagenet, workers=0, seed=4)[0][0])


def test_tests_see_the_middle_of_the_image(imagenet):
    x, _ = next(all_batches(imagenet.test, 4, imagenet.normaliser))
    assert x.shape == (4, 3, 16, 16)
    file = imagenet.test.pixels.files[0]
    with Image.open(file) as image:
        resized = image.resize((round(40 / 20 * 18), 18), Image.Resampling.BILINEAR)  # 16 * 256 / 224, rounded
        middle = resized.crop((10, 1, 26, 17))
    expected = torch.from_numpy(np.asarray(middle).copy()).permute(2, 0, 1)
    assert torch.equal(imagenet.test.pixels[:1][0], expected)


def test_splits_and_fixed_batches_stay_with_their_labels(imagenet):
    rest, held = split_validation(imagenet.train, 0.25)
    assert (len(rest), len(held)) == (18, 6)
    assert not set(rest.pixels.files) & set(held.pixels.files)
    for x, y in fixed_batches(held, 3, imagenet.normaliser):
        assert torch.equal(x.mean((2, 3)).argmax(1), y)


def test_a_digest_knows_other_files(imagenet, tmp_path):
    other = load(f"imagenet:{photographs(tmp_path, train=7)}", image_size=16)
    assert imagenet.train.digest() != other.train.digest()
    assert imagenet.train.digest() == imagenet.train.digest()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file_is_named(tmp_path, workers):
    data = load(f"imagenet:{photographs(tmp_path)}", image_size=16)
    broken = data.train.pixels.files[5]
    broken.write_bytes(b"no image")
    with pytest.raises(DataError, match=f"{broken.name} is not"):
        epoch(data, workers)


def test_missing_images_say_how_to_get_them(tmp_path):
    with pytest.raises(DataError, match=r"has no train and no val: ask for ILSVRC 2012 at https://image-net.org"):
        load(f"imagenet:{tmp_path}")


def test_a_large_folder_stays_in_its_files_too(tmp_path, monkeypatch):
    folder = photographs(tmp_path)
    assert not isinstance(load(f"imagefolder:{folder}", image_size=16).train.pixels, FilePixels)
    monkeypatch.setattr(folders, "MOST_BYTES", 1000)
    assert isinstance(load(f"imagefolder:{folder}", image_size=16).train.pixels, FilePixels)


@pytest.mark.parametrize(("setting", "value"), [("min_area", 0.0), ("min_area", 1.5), ("colour_jitter", 1.0)])
def test_impossible_crops_are_refused(setting, value):
    with pytest.raises(DataError, match=f"{setting} of a resized crop must be a share of 1; got {value}"):
        ResizedCrop(**{setting: value})


def test_colours_shift_only_where_asked_for():
    grey = torch.full((2, 3, 16, 16), 128, dtype=torch.uint8)
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(ResizedCrop()(grey, generator), grey)
    shifted = ResizedCrop(colour_jitter=0.4)(grey, generator)
    assert not torch.equal(shifted[0], shifted[1])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_that_was_taken_turned_is_upright(orientation):
    pixels = np.arange(16 * 24 * 3, dtype=np.uint8).reshape(16, 24, 3) // 4
    tag = Image.Exif()
    tag[0x0112] = orientation
    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, "PNG", exif=tag)
    with Image.open(io.BytesIO(stored.getvalue())) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(np.asarray(decode("a", stored.getvalue())), expected)
    small = decode_all([("a", stored.getvalue())], 8)
    upright = Image.fromarray(expected)
    assert torch.equal(small[0], decode_all([("b", as_png(upright))], 8)[0])


def as_png(image):
    stored = io.BytesIO()
    image.save(stored, "PNG")
    return stored.getvalue()
