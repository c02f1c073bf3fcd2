"""Folders of image files: `PATH/train/CLASS/*.png` and `PATH/test/CLASS/*.png` (or `val`, `validation`)."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image

from bcnet.data.decoding import Labelled, decode_all
from bcnet.data.images import DataSet
from bcnet.data.splits import hold_out
from bcnet.errors import DataError

_TEST_NAMES = ("test", "val", "validation")


def load_image_folder(path: Path, image_size: int | None) -> DataSet:
    """The images under `path`, a subfolder for each class.

    Without a folder for testing a fixed fifth of every class is held out, which `notes` says. A `path` without `train`
    holds the classes itself.

    Raises:
        DataError: no such folder, no classes, a class without images, other classes for testing than for training, or
            an image that cannot be read.
    """
    if not path.is_dir():
        raise DataError(f"imagefolder:PATH takes a folder; got {str(path)!r}, which is none")
    train_folder = path / "train" if (path / "train").is_dir() else path
    test_folder = next((path / name for name in _TEST_NAMES if (path / name).is_dir()), None)
    if train_folder is path and test_folder is not None:
        raise DataError(f"a folder with {test_folder.name}/ has train/ beside it; got {str(path)!r} without")
    files = _files_by_class(train_folder)
    train = _load(files, image_size)
    name, class_names = f"imagefolder:{path}", list(files)
    if test_folder is None:
        train, test, note = hold_out(train)
        return DataSet.from_tensors(train, test, name=name, class_names=class_names, notes=[note])
    test_files = _files_by_class(test_folder)
    if list(test_files) != class_names:
        differing = sorted(set(test_files) ^ set(class_names))
        raise DataError(f"training and test images have the same classes; got {', '.join(differing)} in only one")
    return DataSet.from_tensors(train, _load(test_files, image_size), name=name, class_names=class_names)


def _files_by_class(folder: Path) -> dict[str, list[Path]]:
    suffixes = set(Image.registered_extensions())
    classes = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise DataError(f"a folder of images has a subfolder for each class; got none in {str(folder)!r}")
    files = {entry.name: sorted(file for file in entry.rglob("*") if _is_image(file, suffixes)) for entry in classes}
    empty = [name for name, members in files.items() if not members]
    if empty:
        raise DataError(f"every class has images; got none in {str(folder)!r} for {', '.join(empty)}")
    return files


def _is_image(file: Path, suffixes: set[str]) -> bool:
    return file.suffix.lower() in suffixes and not file.name.startswith(".") and file.is_file()


def _load(files: dict[str, list[Path]], image_size: int | None) -> Labelled:
    pixels = decode_all(((str(file), file) for members in files.values() for file in members), image_size)
    counts = torch.tensor([len(members) for members in files.values()])
    return pixels, torch.arange(len(files)).repeat_interleave(counts)
