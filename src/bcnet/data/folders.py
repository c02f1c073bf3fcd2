"""Folders of image files: `PATH/train/CLASS/*.png` and `PATH/test/CLASS/*.png`, or other usual split names.

Images that would take more than two gigabytes stay in their files; ImageNet's always do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import torch
from PIL import Image

from bcnet.data.decoding import FORMATS, decode_all
from bcnet.data.files import FilePixels
from bcnet.data.images import DataSet, SomeImages
from bcnet.data.splits import data_set, usual_parts, what_was_read
from bcnet.errors import DataError

_USUAL_SIZE = 224
MOST_BYTES = 2 * 2**30


def load_imagenet(path: Path, image_size: int | None) -> DataSet:
    """Load ImageNet, or a data set of its form: `train/CLASS/*.JPEG` and `val/CLASS/*.JPEG`, read from files on demand.

    Raises:
        DataError: the folders are missing; the message says how to get them.
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
    """Load the images under `path`, with one subfolder per class, at any depth and through links.

    `path` holds a training and a test folder, by their usual names in any case (`TRAINING_NAMES`, `TEST_NAMES`), or the
    classes themselves. If there is a validation folder besides both, it scores candidates. Without a test folder a
    fixed fifth of every class is held out. `notes` say how many images were read from where, and what was ignored.

    Raises:
        DataError: no such folder, fewer than two classes, a class without images, test classes that training lacks, or
            an unreadable image.
    """
    if not path.is_dir():
        raise DataError(f"imagefolder:PATH takes a folder; got {str(path)!r}, which is not one")
    return _load_folder(path, image_size, f"imagefolder:{path}", in_files=False)


def _load_folder(path: Path, image_size: int | None, name: str, *, in_files: bool) -> DataSet:
    folders = _split_folders(path)
    files = {part: _files_by_class(folder, all_there=part == "training") for part, folder in folders.items()}
    class_names = list(files["training"])
    for part, members in files.items():
        if unknown := sorted({*members} - {*class_names}):
            raise DataError(
                f"{part} images must be of the classes of training; got {', '.join(unknown)} in {part} alone"
            )
        files[part] = {name: members.get(name, []) for name in class_names}
    much = in_files or is_much(sum(map(len, files["training"].values())), image_size)
    return data_set(
        {part: _load(members, image_size, in_files=much) for part, members in files.items()},
        name=name,
        class_names=class_names,
        note=_read_note(path, {folders[part]: members for part, members in files.items()}),
    )


def _split_folders(path: Path) -> dict[str, Path]:
    """Return the folders of the training images, and of validation and test images if present.

    Raises:
        DataError: only test images, or `path` has a single subfolder, which is not a class.
    """
    folders = {entry.name: entry for entry in _subfolders(path)}
    found = usual_parts(folders, str(path))
    if "training" in found:
        return {part: folder for part, (_, folder) in found.items()}
    if "test" in found:
        raise DataError(
            f"a folder with {found['test'][0]}/ must have train/ beside it; got {str(path)!r} without: rename the "
            "folder of the training images"
        )
    return {"training": path}


def _files_by_class(folder: Path, *, all_there: bool) -> dict[str, list[Path]]:
    """Return the image files of every class; with `all_there`, require at least two classes, none of them empty."""
    classes = _subfolders(folder)
    if not classes:
        raise DataError(f"a folder of images must have a subfolder for each class; got none in {str(folder)!r}")
    if len(classes) == 1 and all_there:
        inner = classes[0]
        advice = f"give {str(inner)!r}" if _subfolders(inner) else "give the folder that holds all classes"
        raise DataError(f"a classifier needs two classes or more; got only {inner.name!r} in {str(folder)!r}: {advice}")
    files = {entry.name: files_of_images(entry) for entry in classes}
    empty = [name for name, members in files.items() if not members]
    if len(empty) == len(files) or (empty and all_there):
        raise DataError(f"every class must have images; got none in {str(folder)!r} for {', '.join(empty)}")
    return files


def files_of_images(folder: Path) -> list[Path]:
    """Return all image files under a folder, sorted, at any depth and through links."""
    return [file for file in files_under(folder) if _is_image(file)]


def _subfolders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def files_under(folder: Path) -> list[Path]:
    """Return all files under a folder, sorted, through links; a folder reached twice counts once."""
    return sorted(_entries(folder, {folder.resolve()}))


def _entries(folder: Path, seen: set[Path]) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        place = Path(entry.path)
        if entry.is_dir():
            real = place.resolve()
            if real not in seen:  # a link may lead to a parent folder
                seen.add(real)
                yield from _entries(place, seen)
        else:
            yield place


@cache
def _suffixes() -> frozenset[str]:
    return frozenset(suffix for suffix, kind in Image.registered_extensions().items() if kind in FORMATS)


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in _suffixes() and not file.name.startswith(".") and file.is_file()


def _read_note(path: Path, read: dict[Path, dict[str, list[Path]]]) -> str:
    """Return a note on what was read: "3 classes: 12 images in train, 6 in test; left unread: extra/"."""
    counts = {str(folder): sum(map(len, files.values())) for folder, files in read.items()}
    classes = len(next(iter(read.values())))
    unread = []
    if path not in read:
        unread += [f"{entry}/" for entry in _subfolders(path) if entry not in read]
    others = 0
    for folder, files in read.items():
        for name, members in files.items():
            if (folder / name).is_dir():
                visible = [file for file in files_under(folder / name) if not file.name.startswith(".")]
                others += len(visible) - len(members)
    if others:
        unread.append(f"{others} files that are not images")
    return what_was_read(classes, counts, unread)


def is_much(images: int, image_size: int | None) -> bool:
    """Return whether this many images should stay in files; without a size they count as small."""
    return image_size is not None and 3 * image_size**2 * images > MOST_BYTES


def read_images(
    files: Sequence[tuple[str, Path]], labels: torch.Tensor, image_size: int | None, *, in_files: bool
) -> SomeImages:
    """Return the images of `(name, file)` pairs with their labels, read or left `in_files`; names are for messages."""
    if not in_files:
        return decode_all(files, image_size), labels
    assert image_size is not None
    return FilePixels(tuple(file for _, file in files), image_size), labels


def _load(files: dict[str, list[Path]], image_size: int | None, *, in_files: bool) -> SomeImages:
    listed = [(str(file), file) for members in files.values() for file in members]
    return read_images(listed, _labels(files), image_size, in_files=in_files)


def _labels(files: dict[str, list[Path]]) -> torch.Tensor:
    return torch.arange(len(files)).repeat_interleave(torch.tensor([len(members) for members in files.values()]))
