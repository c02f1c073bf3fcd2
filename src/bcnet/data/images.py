"""Labelled images as tensors, and data sets made of them.

Pixels stay bytes until a batch is drawn: CIFAR-10, for instance, takes 184 MB and fits on any device.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import torch

from bcnet.data.augmentation import Augmentation, usual_augmentation
from bcnet.data.big_images import ResizedCrop
from bcnet.data.conversion import read_items
from bcnet.data.decoding import resizing_to
from bcnet.data.files import FilePixels
from bcnet.data.transfer import move
from bcnet.errors import DataError

SomeImages = tuple[torch.Tensor | FilePixels, torch.Tensor]
"""Pixels and labels, in memory or in files."""

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and standard deviation of each channel
_CHUNK_BYTES = 2**22  # of images converted to float at once


@dataclass(frozen=True, eq=False)
class Images:
    """`pixels`, uint8 of shape `(n, C, H, W)`, with `labels`, int64 of shape `(n,)`, on one device.

    Pixels may stay in files (`FilePixels`); such images are read on the CPU, batch by batch.

    Raises:
        DataError: another type or shape, no images, or a negative label.
    """

    pixels: torch.Tensor | FilePixels
    labels: torch.Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.pixels, FilePixels):
            hint = "(x * 255).round().to(torch.uint8) makes bytes of [0, 1]"
            _check_tensor("pixels", self.pixels, torch.uint8, 4, hint)
        _check_tensor("labels", self.labels, torch.int64, 1, "labels.long() converts other integers")
        if len(self.pixels) != len(self.labels):
            raise DataError(
                f"every image must have one label; got {len(self.pixels)} images and {len(self.labels)} labels"
            )
        if len(self.pixels) == 0:
            raise DataError("a set of images must hold at least one; got none: check the split it comes from")
        if self.pixels.device != self.labels.device:
            raise DataError(
                f"pixels and labels must be on one device; got {self.pixels.device} and {self.labels.device}: move one"
            )
        if int(self.labels.min()) < 0:
            raise DataError(
                f"labels must be class numbers from 0; got {int(self.labels.min())}: -1 often marks a split without "
                "labels"
            )

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        _, channels, height, width = self.pixels.shape
        return channels, height, width

    @property
    def nbytes(self) -> int:
        """Bytes in memory; for images in files only the labels'."""
        pixels = 0 if isinstance(self.pixels, FilePixels) else self.pixels.nbytes
        return pixels + self.labels.nbytes

    def to(self, device: torch.device | str) -> Images:
        """Return the images on another device; those in files stay there."""
        if isinstance(self.pixels, FilePixels):
            return self
        return Images(self.pixels.to(device), self.labels.to(device))

    def subset(self, indices: torch.Tensor | Sequence[int]) -> Images:
        """Return the images at `indices`, in that order.

        Raises:
            DataError: an index out of range, or no index.
        """
        index = torch.as_tensor(indices, dtype=torch.int64, device=self.pixels.device)
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(self):
            raise DataError(
                f"indices must be from 0 to {len(self) - 1}; got some from {int(index.min())} to {int(index.max())}"
            )
        chosen = self.pixels.subset(index) if isinstance(self.pixels, FilePixels) else self.pixels[index]
        return Images(chosen, self.labels[index])

    def digest(self) -> str:
        """Return a digest of images and labels."""
        digest = hashlib.sha256(self.labels.cpu().contiguous().numpy().tobytes())
        if isinstance(self.pixels, FilePixels):
            digest.update(self.pixels.digest().encode())
        else:
            digest.update(self.pixels.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Normaliser:
    """Converts bytes to floats of zero mean and unit variance: `(pixels / 255 - mean) / std` per channel.

    Example: `Normaliser.of(train)(train.pixels[:128])`.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    channels_last: bool = True
    """Memory format of the floats: channels-last, or contiguous for networks that require it."""

    @classmethod
    def of(cls, images: Images) -> Normaliser:
        """Return the normaliser with each channel's mean and standard deviation; a constant channel is only centred.

        Images in files get ImageNet's statistics, as usual, since reading all of them would take hours.
        """
        if isinstance(images.pixels, FilePixels):
            return cls(*IMAGENET)
        total = torch.zeros(images.image_shape[0], dtype=torch.float64, device=images.pixels.device)
        squares = torch.zeros_like(total)
        chunk = max(1, _CHUNK_BYTES // images.pixels[0].numel())
        for start in range(0, len(images), chunk):
            values = images.pixels[start : start + chunk].to(torch.float32).div_(255)
            total += values.sum(dim=(0, 2, 3), dtype=torch.float64)
            squares += values.square_().sum(dim=(0, 2, 3), dtype=torch.float64)
        count = images.pixels.numel() // images.image_shape[0]
        mean = total / count
        std = (squares / count - mean.square()).clamp(min=0).sqrt()
        std[std < 1e-4] = 1.0
        return cls(tuple(mean.tolist()), tuple(std.tolist()))

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return floats of bytes `(n, C, H, W)`."""
        scale, shift = _scale_and_shift(self, pixels.device)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        return pixels.to(torch.float32, memory_format=layout).mul_(scale).sub_(shift)


@lru_cache(maxsize=16)
def _scale_and_shift(normaliser: Normaliser, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `1 / (255 std)` and `mean / std`, both `(C, 1, 1)`, cached for all batches."""
    with torch.inference_mode(False):  # cached beyond the caller's inference mode
        scale = torch.tensor([1 / (255 * std) for std in normaliser.std])
        shift = torch.tensor([mean / std for mean, std in zip(normaliser.mean, normaliser.std, strict=True)])
        return move(scale[:, None, None], device), move(shift[:, None, None], device)


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training and test images of the same classes and shape, with their augmentation.

    `validation` scores candidates; by default a part of the training images is held out for it. `notes` are remarks
    from loading, `preparation` describes how files were resized. Batches are channels-last, or contiguous if
    `channels_last` is False, which a run decides for its network. `dataclasses.replace` changes settings:
    `replace(data, augmentation=Augmentation(padding=0, flip=False))`.

    Raises:
        DataError: images of different shapes, a label beyond the classes, or a class without training images.
    """

    name: str
    train: Images
    test: Images
    class_names: tuple[str, ...]
    augmentation: Augmentation | ResizedCrop
    notes: tuple[str, ...] = field(default=())
    channels_last: bool = True
    preparation: str = ""
    validation: Images | None = None

    def __str__(self) -> str:
        counts = [f"{len(images):,} {name}" for name, images in self.parts.items()]
        images = f"{', '.join(counts[:-1])} and {counts[-1]} images {tuple(self.image_shape)}"
        return f"{self.name}: {images} of {self.num_classes} classes"

    __repr__ = __str__

    def __post_init__(self) -> None:
        for text in (self.name, *self.class_names):
            if not text.isascii() and text != text.encode(errors="replace").decode():
                raise DataError(f"names of data and classes must be UTF-8; got {text!r}: rename the folder")
        for part, images in self.parts.items():
            if self.train.image_shape != images.image_shape:
                raise DataError(
                    f"the training and {part} images of {self.name!r} must have one shape; got "
                    f"{self.train.image_shape} and {images.image_shape}: give image_size (--image-size)"
                )
            highest = int(images.labels.max())
            if highest >= self.num_classes:
                raise DataError(
                    f"the labels of {self.name!r} must be from 0 to {self.num_classes - 1} for its {self.num_classes} "
                    f"classes; got {highest} among the {part} images"
                )
        if self.num_classes < 2:
            raise DataError(f"classification needs at least two classes; got one, label 0, for all of {self.name!r}")
        counts = torch.bincount(self.train.labels, minlength=self.num_classes)
        empty = [self.class_names[index] for index in (counts == 0).nonzero().flatten().tolist()]
        if empty:
            raise DataError(
                f"every class of {self.name!r} must have training images; got none for {', '.join(empty[:5])}"
                f"{' and others' if len(empty) > 5 else ''}: leave empty classes out and number the rest from 0"
            )

    @property
    def parts(self) -> dict[str, Images]:
        """Images by part: training, validation if given, and test."""
        middle = {} if self.validation is None else {"validation": self.validation}
        return {"training": self.train, **middle, "test": self.test}

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def trained_on(self) -> int:
        """Number of training images."""
        return len(self.train)

    @property
    def holds_out(self) -> bool:
        """Return whether a part of the training images is held out to score candidates."""
        return self.validation is None

    @property
    def in_memory(self) -> bool:
        """Return whether the training images are in memory, not in files."""
        return not isinstance(self.train.pixels, FilePixels)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.train.image_shape

    @property
    def nbytes(self) -> int:
        """Bytes in memory; for images in files only the labels'."""
        return sum(images.nbytes for images in self.parts.values())

    @cached_property
    def normaliser(self) -> Normaliser:
        """Normaliser for the statistics of the training images."""
        return dataclasses.replace(Normaliser.of(self.train), channels_last=self.channels_last)

    def to(self, device: torch.device | str) -> DataSet:
        """Return the data set on another device."""
        return self.with_each(lambda images: images.to(device))

    def with_each(self, change: Callable[[Images], Images]) -> DataSet:
        """Return the data set with `change` applied to all of its images."""
        validation = None if self.validation is None else change(self.validation)
        return dataclasses.replace(self, train=change(self.train), test=change(self.test), validation=validation)

    @classmethod
    def from_tensors(
        cls,
        train: SomeImages,
        test: SomeImages,
        *,
        name: str = "tensors",
        class_names: Sequence[str] | None = None,
        augmentation: Augmentation | ResizedCrop | None = None,
        notes: Sequence[str] = (),
        validation: SomeImages | None = None,
    ) -> DataSet:
        """Make a data set from `(pixels, labels)` pairs: bytes `(n, C, H, W)` and integers `(n,)`.

        `validation` images score candidates; by default a part of the training images is held out. `class_names`
        defaults to the numbers up to the highest training label. `augmentation` defaults to crops padded by an eighth
        of the size, and flips for colour images (`usual_augmentation`); for images in files, to random resized crops
        and flips.

        Raises:
            DataError: as for `Images` and `DataSet`.
        """
        given = (train, test) if validation is None else (train, test, validation)
        parts = [Images(pixels, as_labels(labels)) for pixels, labels in given]
        if class_names is None:
            class_names = [str(number) for number in range(_count_classes(parts[0]))]
        if augmentation is None:
            in_files = isinstance(parts[0].pixels, FilePixels)
            augmentation = ResizedCrop() if in_files else usual_augmentation(parts[0].image_shape)
        scoring = None if validation is None else parts[2]
        return cls(name, parts[0], parts[1], tuple(class_names), augmentation, tuple(notes), validation=scoring)

    @classmethod
    def from_datasets(
        cls,
        train: Iterable[Any],
        test: Iterable[Any],
        *,
        name: str = "datasets",
        image_size: int | None = None,
        class_names: Sequence[str] | None = None,
        augmentation: Augmentation | None = None,
        validation: Iterable[Any] | None = None,
    ) -> DataSet:
        """Make a data set from two torch `Dataset`s, `DataLoader`s or iterables of `(image, label)`, each read once.

        A third one, `validation`, scores candidates. Items may be dicts with an image (`image`, `img`, `pixel_values`)
        and a label (`label`, `labels`, `fine_label`).

        Images are PIL images, byte arrays `(H, W)` or `(H, W, C)`, or tensors `(C, H, W)` of bytes or of floats in [0,
        1] (as from torchvision's `ToTensor`). A `DataLoader` yields batches of such tensors and must not shuffle. Leave
        out normalisation and augmentation, which are applied to whole batches. With an `image_size`, every image is
        resized to it (shorter side, bicubic) and cropped to the centre square.

        Raises:
            DataError: items of another form, floats outside [0, 1], labels that are not class numbers, images of
                different sizes without `image_size`, an empty split, or a loader that shuffles.
        """
        given = {"train": train, "test": test} | ({} if validation is None else {"validation": validation})
        parts = {which: read_items(part, f"{name}, {which}", image_size) for which, part in given.items()}
        found = cls.from_tensors(
            parts["train"],
            parts["test"],
            name=name,
            class_names=class_names,
            augmentation=augmentation,
            validation=parts.get("validation"),
        )
        return found if image_size is None else replace(found, preparation=str(resizing_to(image_size)))


def as_labels(labels: torch.Tensor) -> torch.Tensor:
    """Return integers of any type as int64.

    Raises:
        DataError: the labels are not integers.
    """
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DataError(f"labels must be integers, the class numbers from 0; got {labels.dtype}: use labels.long()")
    return labels.to(torch.int64)


def _count_classes(images: Images) -> int:
    count = int(images.labels.max()) + 1
    if count > len(images):
        raise DataError(
            f"labels number the classes from 0 without a gap; got {count - 1} among {len(images)} training images: "
            "number the classes anew"
        )
    return count


def _check_tensor(name: str, value: object, dtype: torch.dtype, dims: int, hint: str) -> None:
    rule = f"{name} must be a {dtype} tensor of shape {'(n, C, H, W)' if dims == 4 else '(n,)'}"
    if not isinstance(value, torch.Tensor):
        raise DataError(f"{rule}; got {type(value).__name__}: {hint}")
    if value.dtype != dtype or value.dim() != dims:
        raise DataError(f"{rule}; got {value.dtype} of shape {tuple(value.shape)}: {hint}")
