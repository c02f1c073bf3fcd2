"""Tables of images and labels.

Parquet files and data sets of the hub hold encoded images and are read with Hugging Face `datasets`; CSV tables list
image files, with a class for each.
"""

from __future__ import annotations

import csv
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from bcnet.data.conversion import IMAGE_COLUMNS, LABEL_COLUMNS, column_of, in_words, read_items
from bcnet.data.decoding import decode_all
from bcnet.data.folders import is_much, read_images
from bcnet.data.images import DataSet, SomeImages
from bcnet.data.splits import (
    TEST_NAMES,
    TRAINING_NAMES,
    data_set,
    named_split,
    number_classes,
    usual_parts,
    what_was_read,
)
from bcnet.errors import DataError

_FILES = ("file_name", "filename", "file", "path", "filepath", "image", "image_path", "image_id")
_CLASSES = ("label", "class", "class_name", "category", "target", "fine_label")
_SPLITS = ("split", "set", "subset", "fold")
_ROWS = 1000  # read at once
_SAVED = ("dataset_dict.json", "state.json")


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
        raise DataError(
            f"a table of images must have rows for training; got the splits {in_words(splits)} in {str(path)!r}"
        )
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
            f"a folder of CSV files must have train.csv and test.csv; got {', '.join(f.name for f in files)}: give one "
            "file"
        )
    return found


def _read_rows(path: Path) -> dict[str, list[_Row]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            # Spreadsheets write semicolons or tabs: the delimiter is the character that is most frequent in the
            # heading.
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
                    raise DataError(
                        f"every row must have a file and a class; got {', '.join(map(repr, values))} in {line}"
                    )
                found[values[2] if split else "train"].append(
                    _Row(_inside_folder(path, values[0], line), values[1], line)
                )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"csv:PATH takes a CSV file in UTF-8; {str(path)!r} could not be read: {error}") from error
    if not found:
        raise DataError(f"a table of images must have rows; got none in {str(path)!r}")
    return found


def _inside_folder(table: Path, name: str, line: str) -> Path:
    """Return the file that a row names.

    Raises:
        DataError: it is missing, or outside the folder of the table.
    """
    folder = table.parent.resolve()
    file = (folder / name.replace("\0", "\ufffd")).resolve()  # file names cannot contain a zero byte
    if not file.is_relative_to(folder):
        raise DataError(
            f"the files of a table must be in its folder, so that an untrusted table cannot read others; got {name!r} "
            f"in {line}: put the CSV file above its images"
        )
    if not file.is_file():
        raise DataError(
            f"the files of a table must exist; {name!r} in {line} does not: paths are relative to {str(folder)!r}"
        )
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
            raise DataError(f"all images must be of the classes of training; got {row.label!r} in {row.line}")
    labels = torch.tensor([places[row.label] for row in rows])
    return read_images([(f"{row.line}: {row.file}", row.file) for row in rows], labels, image_size, in_files=in_files)


def load_parquet(path: Path, image_size: int | None) -> DataSet:
    """Load the images of a parquet file, or of a folder's `train*.parquet` with `test*.parquet`.

    A split has its usual name (`TRAINING_NAMES`, `TEST_NAMES`) at the start of a file's or folder's name
    (`train/0000.parquet`). A validation split besides a test split scores candidates. Without test images a fixed fifth
    of every class is held out. `notes` say how many images were read from where, and which splits were ignored.

    Raises:
        DataError: no such files, files of several configurations, an unreadable file, a missing column, or unsuitable
            images or labels.
    """
    files = _parquet_files(path)
    datasets = _import_datasets("parquet:PATH")
    try:
        filled = {split: _with_rows(members) for split, members in files.items()}
        tables = datasets.load_dataset("parquet", data_files=filled, streaming=True)
        return _from_tables(f"parquet:{path}", tables, image_size, (path if path.is_dir() else path.parent,))
    except DataError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        raise DataError(f"parquet:PATH takes parquet files; {str(path)!r} could not be read: {reason}") from error


def load_hub(name: str, repository: str, image_size: int | None) -> DataSet:
    """Load a data set of the Hugging Face hub, `ORG/NAME`, downloaded once and then read from the local cache.

    A local folder of this name that `save_to_disk` wrote is read instead.

    Raises:
        DataError: it cannot be downloaded, or lacks suitable columns or splits.
    """
    datasets = _import_datasets(name)
    saved = Path(repository).expanduser()
    if is_saved(saved):
        return _from_tables(name, _load_saved(datasets, saved), image_size, (saved,))
    try:
        tables = datasets.load_dataset(repository)
    except Exception as error:
        raise DataError(
            f"{name} is fetched from the Hugging Face hub ({repository}) unless it is in the local cache; that failed "
            f"with {type(error).__name__}: {error}: check the name and the connection, or get its parquet "
            "files and use parquet:PATH"
        ) from error
    cache = datasets.config
    return _from_tables(name, tables, image_size, (Path(cache.HF_CACHE_HOME), Path(cache.HF_DATASETS_CACHE)))


def is_saved(folder: Path) -> bool:
    """Return whether `save_to_disk` wrote a folder, for a `DatasetDict` or a single `Dataset`."""
    return any((folder / file).is_file() for file in _SAVED)


def _load_saved(datasets: ModuleType, folder: Path) -> Mapping[str, Any]:
    try:
        found = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise DataError(
            f"hf:PATH takes a folder that save_to_disk wrote; {str(folder)!r} is damaged: {error}"
        ) from None
    tables: Mapping[str, Any] = found if isinstance(found, Mapping) else {"train": found}
    return tables


def _import_datasets(what: str) -> ModuleType:
    """Import the package `datasets`, of the extra `hub`.

    Raises:
        DataError: it is not installed.
    """
    try:
        return importlib.import_module("datasets")
    except ModuleNotFoundError as error:
        raise DataError(
            f"{what} is read with the package datasets, of about 250 MB; {error.name} is not installed: run "
            "`pip install 'bcnet[hub]'`"
        ) from error


def is_table(value: Any) -> bool:
    """Return whether a value is a `datasets.Dataset`, without importing the package."""
    return type(value).__module__.partition(".")[0] == "datasets" and bool(getattr(value, "features", None))


def load_tables(tables: Mapping[str, Any], image_size: int | None) -> DataSet:
    """Return the data set of the splits of a `datasets.DatasetDict`, or of `Dataset`s with usual split names.

    Images are read from the tables directly, or through the transform if `set_transform` was called.

    Raises:
        DataError: no training split, a missing column, or unsuitable images or labels.
    """
    return _from_tables("tables", tables, image_size, (Path.cwd(), Path(Path.cwd().anchor)))


def _parquet_files(path: Path) -> dict[str, list[str]]:
    if path.is_file():
        return {"train": [str(path)]}
    if not path.is_dir():
        raise DataError(f"parquet:PATH takes a file or a folder; got {str(path)!r}, which does not exist")
    files: dict[str, list[str]] = defaultdict(list)
    configurations: set[Path] = set()
    found = sorted(path.rglob("*.parquet"))
    for file in found:
        split, folder = _split_of(file)
        if split is not None:
            files[split].append(str(file))
            configurations.add(folder)
    if len(configurations) > 1:
        raise DataError(
            f"parquet:PATH takes the files of one configuration; got those of {len(configurations)} in {str(path)!r}: "
            f"give {' or '.join(repr(str(folder)) for folder in sorted(configurations)[:5])}"
        )
    if named_split(files, TRAINING_NAMES, str(path)) is None:
        raise DataError(
            f"a folder of parquet files must have train*.parquet, and test*.parquet or validation*.parquet; got "
            f"{', '.join(file.name for file in found[:5]) or 'no parquet file'} in {str(path)!r}"
        )
    order = {name: place for place, name in enumerate((*TRAINING_NAMES, *TEST_NAMES))}
    return dict(sorted(files.items(), key=lambda item: order[item[0]]))


def _split_of(file: Path) -> tuple[str | None, Path]:
    """Return the split at the start of the file's or its folder's name, and the folder of its configuration."""
    for name, folder in ((file.stem, file.parent), (file.parent.name, file.parent.parent)):
        word = re.match(r"[A-Za-z]*", name)
        assert word is not None, "the pattern matches the empty string"
        if word[0].lower() in (*TRAINING_NAMES, *TEST_NAMES):
            return word[0].lower(), folder
    return None, file.parent


def _with_rows(files: list[str]) -> list[str]:
    """Return the files with rows; `datasets` refuses empty ones."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    filled = [file for file in files if pq.read_metadata(file).num_rows]
    if not filled:
        raise DataError(f"a set of images must hold at least one; got none in the rows of {', '.join(files)}")
    return filled


def _from_tables(name: str, tables: Mapping[str, Any], image_size: int | None, roots: Sequence[Path]) -> DataSet:
    """Return the data set of splits from `datasets`; image files that they name must lie under one of `roots`."""
    found = usual_parts(tables, name)
    if "training" not in found:
        raise DataError(f"{name} needs a split called train; got {in_words(tables)}")
    features = found["training"][1].features
    parts = {part: _read(f"{name}, {split}", table, image_size, roots) for part, (split, table) in found.items()}
    counts = {found[part][0]: len(labels) for part, (_, labels) in parts.items()}
    words, numbers = number_classes({part: labels for part, (_, labels) in parts.items()}, name)
    return data_set(
        {part: (pixels, numbers[part]) for part, (pixels, _) in parts.items()},
        name=name,
        class_names=words or getattr(features[column_of(name, features, LABEL_COLUMNS)], "names", None),
        note=what_was_read(
            len(set(numbers["training"].tolist())), counts, [split for split in tables if split not in counts]
        ),
    )


def _read(name: str, table: Any, image_size: int | None, roots: Sequence[Path]) -> tuple[torch.Tensor, list[Any]]:
    """Return the pixels `(n, C, H, W)`, and the labels as in the table."""
    if getattr(table, "format", {}).get("type") == "custom":  # set by `set_transform`
        pixels, numbers = read_items(table, name, image_size)
        return pixels, numbers.tolist()
    image_column, label_column = (column_of(name, table.features, names) for names in (IMAGE_COLUMNS, LABEL_COLUMNS))
    labels: list[Any] = []

    def images() -> Iterator[tuple[str, bytes | Path]]:
        for rows in table.with_format("arrow").iter(batch_size=_ROWS):
            start = len(labels)
            labels.extend(rows[label_column].to_pylist())
            encoded = _encoded_images(name, rows[image_column].to_pylist(), start, roots)
            yield from ((f"{name}: image {index}", image) for index, image in enumerate(encoded, start))

    return decode_all(images(), image_size), labels


def _encoded_images(name: str, values: list[Any], start: int, roots: Sequence[Path]) -> list[bytes | Path]:
    images: list[bytes | Path] = []
    for index, value in enumerate(values, start):
        content = value
        if isinstance(value, Mapping):
            content = value.get("bytes") or _file_inside(value.get("path"), roots)
        if not isinstance(content, (bytes, Path)):
            path = value.get("path") if isinstance(value, Mapping) else None
            got = f"only {path!r}" if path else type(content).__name__
            raise DataError(
                "an image must be its encoded bytes, or a mapping with these under 'bytes', or with a file beside the "
                f"table under 'path'; got {got} for {name}: image {index}"
            )
        images.append(content)
    return images


def _file_inside(path: Any, roots: Sequence[Path]) -> Path | None:
    """Return the file that a table names if it is under `roots`; an untrusted table reads no other files."""
    if not path:
        return None
    file = (roots[0] / str(path)).resolve()  # an absolute path stays absolute
    return file if file.is_file() and any(file.is_relative_to(root.resolve()) for root in roots) else None
