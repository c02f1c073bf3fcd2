"""Photographs brought to one size: the usual crops, whatever decodes them, and JPEGs that are decoded smaller."""

import io
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bcnet.data import ResizedCrop
from bcnet.data.big_images import middle
from bcnet.data.decoding import Crop, bytes_of, decode, decode_all
from bcnet.train.recipe import AreaCrop

sides = st.integers(8, 300)
seeds = st.integers(0, 10**6)


def photograph(width, height, seed=0):
    """Smooth colours with a little noise, as photographs are."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((width, height), Image.BICUBIC)
    return Image.fromarray((np.asarray(coarse) * 0.9 + rng.uniform(0, 20, (height, width, 3))).astype(np.uint8))


def as_jpeg(image):
    file = io.BytesIO()
    image.save(file, "JPEG", quality=95)
    return file.getvalue()


@given(sides, sides, st.integers(4, 64))
@settings(max_examples=40, deadline=None)
def test_the_middle_is_torchvisions(width, height, size):
    v2 = pytest.importorskip("torchvision.transforms.v2")
    image = photograph(width, height)
    theirs = v2.CenterCrop(size)(v2.Resize(round(size * 256 / 224), antialias=True)(image))
    assert np.array_equal(np.asarray(middle(width, height, size).of(image)), np.asarray(theirs))


@given(sides, sides, st.floats(0.05, 1.0), seeds)
def test_a_crop_lies_in_the_image_with_an_area_and_a_ratio_that_it_may_have(width, height, least, seed):
    left, top, right, bottom = ResizedCrop(min_area=least).box(width, height, random.Random(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    across, down = right - left, bottom - top
    rounding = 1 / across + 1 / down
    if 3 / 4 <= width / height <= 4 / 3:
        assert across * down >= least * width * height * (1 - rounding) - 1
    assert abs(math.log(across / down)) <= math.log(4 / 3) + rounding


def test_areas_are_uniform_and_places_are_drawn_from_all():
    draws = [ResizedCrop(min_area=0.2).box(400, 400, random.Random(seed)) for seed in range(4000)]
    areas = np.array([(right - left) * (bottom - top) for left, top, right, bottom in draws]) / 400**2
    small = areas[areas < 0.7]  # larger ones do not fit at every ratio
    assert np.histogram(small, bins=5, range=(0.2, 0.7))[0] == pytest.approx(len(small) / 5, rel=0.15)
    inside = [box for box in draws if box[2] - box[0] < 400 and box[3] - box[1] < 400]
    free = [(left / (400 - right + left), top / (400 - bottom + top)) for left, top, right, bottom in inside]
    assert np.mean(free, axis=0) == pytest.approx(0.5, abs=0.02)
    assert np.std(free, axis=0) == pytest.approx(1 / math.sqrt(12), abs=0.02)


@given(st.integers(16, 200), st.integers(16, 200), seeds)
@settings(max_examples=30, deadline=None)
def test_a_part_is_resized_as_torchvision_does_and_flipped_half_of_the_time(width, height, seed):
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    pixels = bytes_of(photograph(width, height))
    theirs = functional.resize(pixels, [20, 30], antialias=True)
    found = ResizedCrop().finish(pixels, (20, 30), random.Random(seed))
    assert any(torch.equal(found, other) for other in (theirs, theirs.flip(2)))
    assert torch.equal(ResizedCrop(flip=False).finish(pixels, (20, 30), random.Random(seed)), theirs)


def test_half_of_all_crops_are_flipped():
    ramp = torch.arange(16, dtype=torch.uint8).expand(1, 16, 16)
    found = [ResizedCrop().finish(ramp, (16, 16), random.Random(seed)) for seed in range(1000)]
    assert sum(bool(crop[0, 0, 0] == 15) for crop in found) == pytest.approx(500, abs=60)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_colours_shift_as_torchvisions(seed):
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    pixels = bytes_of(photograph(24, 24, seed))
    crop = ResizedCrop(flip=False, colour_jitter=0.4)
    found = crop.finish(pixels, (24, 24), random.Random(seed))
    again = random.Random(seed)
    theirs = pixels.float() / 255
    for colour in again.sample(("brightness", "contrast", "saturation"), 3):
        factor = again.uniform(0.6, 1.4)
        theirs = getattr(functional, f"adjust_{colour}")(theirs, factor)
    assert (found - 255 * theirs).abs().max() <= 1.0  # their weights of grey have more digits
    assert not torch.equal(found, pixels)


def test_grey_images_shift_too():
    grey = bytes_of(photograph(24, 24).convert("L"))
    assert grey.shape == (1, 24, 24)
    shifted = ResizedCrop(flip=False, colour_jitter=0.4).finish(grey, (24, 24), random.Random(0))
    assert shifted.shape == grey.shape
    assert not torch.equal(shifted, grey)


@pytest.mark.parametrize("quality", ["photograph", "grey"])
@pytest.mark.parametrize(("width", "height"), [(1200, 900), (640, 2000)])
def test_a_large_jpeg_is_decoded_smaller_and_looks_the_same(width, height, quality, monkeypatch):
    image = photograph(width, height).convert("L" if quality == "grey" else "RGB")
    encoded = as_jpeg(image)
    read = []
    monkeypatch.setattr(Image.Image, "crop", _noting(Image.Image.crop, read))
    for view in (lambda w, h: middle(w, h, 64), lambda w, h: Crop((w // 4, h // 4, w, h), 64)):
        quick = decode("it", encoded, view)
        slow = view(width, height).of(decode("it", encoded), 1.0)
        small, large = (np.asarray(part.resize((64, 64), Image.BILINEAR), dtype=float) for part in (quick, slow))
        assert np.abs(small - large).mean() < 2
    crops = read[2:]  # those of the crop
    assert crops[0][0] <= width / 2 < crops[1][0] == width
    assert min(crops[0]) >= 2 * 64


def _noting(method, read):
    def crop(image, box=None):
        read.append(image.size)
        return method(image, box)

    return crop


@pytest.mark.parametrize(("width", "height"), [(32, 32), (60, 40), (127, 127)])
def test_a_small_jpeg_is_decoded_whole(width, height):
    encoded = as_jpeg(photograph(width, height))
    exact = middle(width, height, 32).of(decode("it", encoded))
    assert np.array_equal(np.asarray(decode("it", encoded, lambda w, h: middle(w, h, 32))), np.asarray(exact))
    assert decode_all([("it", encoded)], 32).shape == (1, 3, 32, 32)


def test_a_recipe_that_says_nothing_more_crops_as_big_images_are_cropped():
    said = AreaCrop()
    assert ResizedCrop(said.min_area, said.flip, said.colour_jitter) == ResizedCrop()
    assert said.flip
