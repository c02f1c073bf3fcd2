"""Photographs in files to batches, in images a second of one core, beside torchvision's loader and timm's.

The JPEGs are made: noise with the spectrum of photographs (amplitudes that fall as the frequency, correlated colours),
which at quality 90 has the bytes of busy ones. They are decoded from the system's cache of files. Training takes random
resized crops and flips to bytes of 224 pixels, tests centre crops; all three loaders are PyTorch's, without workers,
around each package's own reading and transforms: torchvision's on Pillow's images, timm's with its fast collation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from bcnet.data import FilePixels, ResizedCrop
from bcnet.machine.timing import prepare_nothing
from benchmarks.speed_turns import Call, Figure, Pace, in_turns

SIZE = 224
QUALITY = 90
OURS = "bcnet"
_LEFT_ON = 1.1  # how fast amplitudes fall with the frequency


def figures(width: int, height: int, count: int, pace: Pace) -> Iterator[Figure]:
    """Images a second of each loader, and how many times the rivals' ours has."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "photographs"
        files = photographs(folder, width, height, count)
        yield Figure.single("size of a file", float(np.mean([f.stat().st_size for f in files])) / 1e3, "kB")
        for phase in ("training", "test"):
            calls = loaders(folder, files, training=phase == "training")
            turns = in_turns(
                lambda number, calls=calls: {name: (prepare_nothing, call) for name, call in calls.items()}, pace
            )
            for name in calls:
                yield Figure.median(f"{phase}, {name}", count / turns.seconds(name), "images/s")
            for name in calls:
                if name != OURS:
                    yield turns.ratio(f"{phase}, bcnet / {name}, images", name, OURS)


def photographs(folder: Path, width: int, height: int, count: int) -> list[Path]:
    """JPEGs in a folder of one class, as loaders of folders want them."""
    place = folder / "one"
    place.mkdir(parents=True)
    rng = np.random.default_rng(0)
    files = [place / f"{number}.jpg" for number in range(count)]
    for file in files:
        planes = [_noise(rng, width, height) for _ in range(3)]
        colours = np.stack([planes[0], 0.85 * planes[0] + 0.5 * planes[1], 0.85 * planes[0] + 0.5 * planes[2]], axis=-1)
        Image.fromarray(np.clip(110 + 50 * colours, 0, 255).astype(np.uint8)).save(file, quality=QUALITY)
    return files


def _noise(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = np.inf  # no mean
    waves = rng.normal(size=frequency.shape) + 1j * rng.normal(size=frequency.shape)
    noise = np.fft.irfft2(waves / frequency**_LEFT_ON, s=(height, width))
    return noise / noise.std()


def loaders(folder: Path, files: list[Path], *, training: bool) -> dict[str, Call]:
    """What reads all images once, by its name."""
    calls: dict[str, Callable[[], object]] = {OURS: partial(_ours, FilePixels(tuple(files), SIZE, workers=0), training)}
    for name, loader in (("torchvision", _torchvision(folder, training)), ("timm", _timm(folder, training))):
        calls[name] = partial(list, loader)
    return calls


def _ours(pixels: FilePixels, training: bool) -> list[torch.Tensor]:
    crop = ResizedCrop() if training else None
    return list(pixels.batches([range(len(pixels))], crop, torch.Generator().manual_seed(0)))


def _torchvision(folder: Path, training: bool) -> DataLoader[object]:
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    crops = (
        [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()]
        if training
        else [transforms.Resize(256), transforms.CenterCrop(SIZE)]
    )
    images = ImageFolder(str(folder), transforms.Compose([*crops, transforms.PILToTensor()]))
    return DataLoader(images, batch_size=len(images))


def _timm(folder: Path, training: bool) -> DataLoader[object]:
    from timm.data import ImageDataset, create_transform
    from timm.data.loader import fast_collate

    plain = {"color_jitter": None, "auto_augment": None} if training else {"crop_pct": 224 / 256}
    transform = create_transform(
        SIZE, is_training=training, interpolation="bilinear", use_prefetcher=True, **plain
    )  # bytes
    images = ImageDataset(str(folder), transform=transform)
    return DataLoader(images, batch_size=len(images), collate_fn=fast_collate)
