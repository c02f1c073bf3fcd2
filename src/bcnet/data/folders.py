"""Folders of image files: `PATH/train/CLASS/*.png` and `PATH/test/CLASS/*.png` (or `val`, `validation`).

Images that would take more than two gigabytes stay in their files; those of ImageNet always do.
"""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image

from bcnet.data.decoding import FORMATS, Labelled, decode_all
from bcnet.data.files import FilePixels
from bcnet.data.images import DataSet
from bcnet.data.splits import hold_out
from bcnet.errors import DataError

_TEST_NAMES = ("test", "val", "validation")
_USUAL_SIZE = 224
_MOST_BYTES = 2 * 2**30


def load_imagenet(path: Path, image_size: int | None) -> DataSet:
    """ImageNet, or a data set of its form: `train/CLASS/*.JPEG` and `val/CLASS/*.JPEG`, left in their files.

    Raises:
        DataError: they are not there, with how to get them.
    """
    missing = [part for part in ("train", "val") if not (path / part).is_dir()]
    if missing:
        raise DataError(
            f"imagenet:PATH takes a folder with train/CLASS/*.JPEG and val/CLASS/*.JPEG; {str(path)!r} has no "
            f"{' and no '.join(missing)}: ask for ILSVRC 2012 at https://image-net.org/download.php, unpack "
            "ILSVRC2012_img_train.tar into train/, one folder a class, and sort the images of ILSVRC2012_img_val.tar "
            "into the folders of their classes in val/"
        )
    return _load_folder(path, image_size or _USUAL_SIZE, f"imagenet:{path}", in_files=True)


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
    return _load_folder(path, image_size, f"imagefolder:{path}", in_files=False)


def _load_folder(path: Path, image_size: int | None, name: str, *, in_files: bool) -> DataSet:
    train_folder = path / "train" if (path / "train").is_dir() else path
    test_folder = next((path / name for name in _TEST_NAMES if (path / name).is_dir()), None)
    if train_folder is path and test_folder is not None:
        raise DataError(f"a folder with {test_folder.name}/ has train/ beside it; got {str(path)!r} without")
    files = _files_by_class(train_folder)
    class_names = list(files)
    load = _in_files if in_files or _is_much(files, image_size) else _load
    train = load(files, image_size)
    if test_folder is None:
        rest, held, note = hold_out(train)
        return DataSet.from_tensors(rest, held, name=name, class_names=class_names, notes=[note])
    test_files = _files_by_class(test_folder)
    if list(test_files) != class_names:
        differing = sorted(set(test_files) ^ set(class_names))
        raise DataError(f"training and test images have the same classes; got {', '.join(differing)} in only one")
    return DataSet.from_tensors(train, load(test_files, image_size), name=name, class_names=class_names)


def _files_by_class(folder: Path) -> dict[str, list[Path]]:
    suffixes = {suffix for suffix, kind in Image.registered_extensions().items() if kind in FORMATS}
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


def _is_much(files: dict[str, list[Path]], image_size: int | None) -> bool:
    """Whether the images are better left in their files; of unknown size they are small."""
    return image_size is not None and 3 * image_size**2 * sum(map(len, files.values())) > _MOST_BYTES


def _in_files(files: dict[str, list[Path]], image_size: int | None) -> tuple[FilePixels, torch.Tensor]:
    assert image_size is not None
    pixels = FilePixels(tuple(file for members in files.values() for file in members), image_size)
    return pixels, _labels(files)


def _load(files: dict[str, list[Path]], image_size: int | None) -> Labelled:
    pixels = decode_all(((str(file), file) for members in files.values() for file in members), image_size)
    return pixels, _labels(files)


def _labels(files: dict[str, list[Path]]) -> torch.Tensor:
    return torch.arange(len(files)).repeat_interleave(torch.tensor([len(members) for members in files.values()]))
