"""Image files listed in a CSV table, with a class for each."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch

from bcnet.data.conversion import column_of, in_words
from bcnet.data.folders import is_much, read_images
from bcnet.data.images import DataSet, SomeImages
from bcnet.data.splits import TEST_NAMES, TRAINING_NAMES, data_set, usual_parts, what_was_read
from bcnet.errors import DataError

_FILES = ("file_name", "filename", "file", "path", "filepath", "image", "image_path", "image_id")
_CLASSES = ("label", "class", "class_name", "category", "target", "fine_label")
_SPLITS = ("split", "set", "subset", "fold")


@dataclass(frozen=True)
class _Row:
    """An image file and its class name; `line` is its place in the table."""

    file: Path
    label: str
    line: str


def load_csv(path: Path, image_size: int | None) -> DataSet:
    """Load the images listed in a CSV file, separated by commas, semicolons or tabs.

    It has a column of file names and one of classes, with usual names (`file_name`, `path`, ...; `label`, `class`,
    ...).

    File names are relative to the folder of the CSV file and must lie in it: a table reads no other files. Classes are
    words or numbers, sorted alphabetically or numerically. A column of splits (`split`, `set`, `subset`) separates
    training, validation and test images; or `path` is a folder with one file per split (`train.csv`, `test.csv`).
    Without test images a fixed fifth of every class is held out.

    Raises:
        DataError: no such file, a missing column or value, an image that is outside the folder, missing or unreadable,
            or a class that training lacks.
    """
    splits = _read_splits(path)
    found = usual_parts(splits, str(path))
    if "training" not in found:
        raise DataError(f"a table of images has rows for training; got the splits {in_words(splits)} in {str(path)!r}")
    rows = {part: listed for part, (_, listed) in found.items()}
    counts = {split: len(listed) for split, listed in found.values()}
    names = _class_names(rows["training"])
    in_files = is_much(len(rows["training"]), image_size)
    return data_set(
        {part: _images(listed, names, image_size, in_files=in_files) for part, listed in rows.items()},
        name=f"csv:{path}",
        class_names=names,
        note=what_was_read(len(names), counts, [split for split in splits if split not in counts]),
    )


def _read_splits(path: Path) -> dict[str, list[_Row]]:
    """Return the rows by split: from a column of splits, or from one file per split."""
    if path.is_file():
        return _read_rows(path)
    files = sorted(path.glob("*.csv")) if path.is_dir() else []
    if not files:
        lacks = "which holds none" if path.is_dir() else "which does not exist"
        raise DataError(
            f"csv:PATH takes a CSV file, or a folder with train.csv and test.csv; got {str(path)!r}, {lacks}"
        )
    found: dict[str, list[_Row]] = {}
    for file in files:
        if file.stem.lower() in (*TRAINING_NAMES, *TEST_NAMES):
            found[file.stem] = [row for rows in _read_rows(file).values() for row in rows]
    if not found:
        raise DataError(
            f"a folder of CSV files has train.csv and test.csv; got {', '.join(f.name for f in files)}: give one file"
        )
    return found


def _read_rows(path: Path) -> dict[str, list[_Row]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            first = stream.readline()
            stream.seek(0)
            table = csv.DictReader(stream, delimiter=max(",;\t", key=first.count))
            columns = {name.strip().lower(): name for name in table.fieldnames or ()}
            file, label = (columns[column_of(str(path), columns, names)] for names in (_FILES, _CLASSES))
            split = next((columns[name] for name in _SPLITS if name in columns), None)
            found: dict[str, list[_Row]] = defaultdict(list)
            for row in table:
                line = f"{path.name}, line {table.line_num}"
                values = [(row[name] or "").strip() for name in (file, label, *([split] if split else []))]
                if not all(values):
                    raise DataError(f"every row has a file and a class; got {', '.join(map(repr, values))} in {line}")
                found[values[2] if split else "train"].append(_Row(_inside(path, values[0], line), values[1], line))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"csv:PATH takes a CSV file in UTF-8; {str(path)!r} could not be read: {error}") from error
    if not found:
        raise DataError(f"a table of images has rows; got none in {str(path)!r}")
    return found


def _inside(table: Path, name: str, line: str) -> Path:
    """Return the file that a row names.

    Raises:
        DataError: it is missing, or outside the folder of the table.
    """
    folder = table.parent.resolve()
    file = (folder / name.replace("\0", "\ufffd")).resolve()  # file names cannot contain a zero byte
    if not file.is_relative_to(folder):
        raise DataError(
            f"the files of a table lie in its folder, since a table from elsewhere must not read others; got {name!r} "
            f"in {line}: put the CSV file above its images"
        )
    if not file.is_file():
        raise DataError(f"the files of a table are there; {name!r} in {line} is not: names count from {str(folder)!r}")
    return file


def _class_names(rows: list[_Row]) -> list[str]:
    names = {row.label for row in rows}
    if len(names) < 2:
        raise DataError(f"a classifier needs two classes or more; got only {in_words(names)} for training")
    numbers = all(name.isdecimal() for name in names)
    return sorted(names, key=int) if numbers else sorted(names)


def _images(rows: list[_Row], names: list[str], image_size: int | None, *, in_files: bool) -> SomeImages:
    places = {name: index for index, name in enumerate(names)}
    for row in rows:
        if row.label not in places:
            raise DataError(f"all images are of the classes of training; got {row.label!r} in {row.line}")
    labels = torch.tensor([places[row.label] for row in rows])
    return read_images([(f"{row.line}: {row.file}", row.file) for row in rows], labels, image_size, in_files=in_files)
