"""Data sets by name."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from bcnet.data.arrays import load_arrays
from bcnet.data.big_images import resizing_of_tests
from bcnet.data.decoding import resizing_to
from bcnet.data.digits import digits, scattered_digits
from bcnet.data.files import FilePixels
from bcnet.data.folders import load_image_folder, load_imagenet
from bcnet.data.images import DataSet
from bcnet.data.tables import is_saved, load_csv, load_hub, load_parquet
from bcnet.errors import DataError
from bcnet.importing import import_object

NAMES = (
    "digits",
    "scattered_digits",
    "cifar10",
    "parquet:PATH",
    "imagefolder:PATH",
    "csv:PATH",
    "npz:PATH",
    "imagenet:PATH",
    "hf:ORG/NAME",
    "inputs:PATH",
)
_KINDS = ("parquet", "imagefolder", "csv", "npz", "imagenet", "hf", "inputs")
_FORMS = f"one of {', '.join(NAMES)}, package.module:function, or FILE.py:function in this folder"
_CIFAR10 = "uoft-cs/cifar10"


def load(name: str, *, image_size: int | None = None) -> DataSet:
    """Load the data set `name` as bytes in CPU memory.

    - `digits`: scikit-learn's 1,797 handwritten digits, 8x8 and grey, with a fixed fifth of every class for testing; -
    `scattered_digits`: 4,314 training and 2,872 test images, 20x20 and grey, made from these digits (`scattered`); -
    `cifar10`: from the Hugging Face hub, downloaded once; - `parquet:PATH`: a file, or a folder with `train*.parquet`
    and `test*.parquet` or `validation*.parquet`, with an image
      column (`image`, `img` or `image.bytes`) and class numbers or words (`label`);
    - `imagefolder:PATH`: `train/CLASS/...` and `test/CLASS/...` (or `val`; besides `test` it scores candidates); -
    `csv:PATH`: a table of file names and classes, optionally with a column of splits, or a folder with `train.csv` and
      `test.csv`;
    - `npz:PATH`: arrays of images and labels (`x_train`, `y_train`, ..., or `train_images`, `train_labels`, ...);
    - `imagenet:PATH`: `train/CLASS/...` and `val/CLASS/...`, decoded batch by batch, never all in memory;
    - `hf:ORG/NAME`: a data set of the Hugging Face hub, or a folder written by `save_to_disk`.

    `inputs:PATH`, inputs without labels (a `.npy` or `.npz` file, or a folder of images), is read by the task
    imitation.

    With an `image_size`, every image is resized to it (shorter side, bicubic) and cropped to the centre square;
    without, all images must have one size.

    Raises:
        DataError: an unknown name, or data that are missing, unreadable or inconsistent.
    """
    if image_size is not None and (isinstance(image_size, bool) or not isinstance(image_size, int) or image_size < 1):
        raise DataError(f"image_size must be a positive int; got {image_size!r}")
    found = _load(name, image_size)
    if isinstance(found.train.pixels, FilePixels):
        return replace(found, preparation=f"{resizing_of_tests(found.train.pixels.size)}, RGB")
    return found if image_size is None else replace(found, preparation=str(resizing_to(image_size)))


def _load(name: str, image_size: int | None) -> DataSet:
    if name == "digits":
        return digits(image_size)
    if name == "scattered_digits":
        return scattered_digits(image_size)
    if name == "cifar10":
        return load_hub(name, _CIFAR10, image_size)
    kind, _, place = name.partition(":")
    if kind == "parquet" and place:
        return load_parquet(Path(place).expanduser(), image_size)
    if kind == "imagefolder" and place:
        return load_image_folder(Path(place).expanduser(), image_size)
    if kind == "csv" and place:
        return load_csv(Path(place).expanduser(), image_size)
    if kind == "npz" and place:
        return load_arrays(Path(place).expanduser(), image_size)
    if kind == "imagenet" and place:
        return load_imagenet(Path(place).expanduser(), image_size)
    if kind == "hf" and (re.fullmatch(r"[\w.-]+(/[\w.-]+)?", place) or is_saved(Path(place).expanduser())):
        return load_hub(name, place, image_size)
    if kind == "inputs":
        raise DataError(f"inputs alone are for task='imitation' (--task imitation); got {name!r}: give that task")
    raise DataError(f"a data set must be {_FORMS}; got {name!r}{_hint(name)}")


def imports_code(name: str) -> bool:
    """Return whether the name refers to the user's own function."""
    kind, colon, _ = name.partition(":")
    is_path = "/" in name or "\\" in name
    return bool(colon) and kind not in _KINDS and (kind.endswith(".py") or not is_path)


def made_by(name: str) -> Any:
    """Return the result of the user's function `package.module:function`, called without arguments.

    Raises:
        DataError: it cannot be imported, or fails.
    """
    function = import_object(name, what="data set", forms=_FORMS, error=DataError)
    try:
        return function()
    except Exception as error:
        raise DataError(
            f"the function of data set {name!r} has to run without arguments; it failed with {type(error).__name__}: "
            f"{error}"
        ) from error


def _hint(name: str) -> str:
    if name and Path(name).is_dir():
        return f": a folder of images, with a subfolder for each class, is imagefolder:{name}"
    kind = Path(name).suffix.removeprefix(".").lower()
    if kind in _KINDS and Path(name).is_file():
        return f": such a file is {kind}:{name}"
    near = get_close_matches(name, NAMES[:3], n=1)
    return f" (nearest: {near[0]})" if near else ""
