"""Tables of encoded images and labels, read with Hugging Face `datasets`: parquet files, and sets of the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bcnet.data.decoding import Labelled, decode_all
from bcnet.data.images import DataSet
from bcnet.data.splits import hold_out
from bcnet.errors import DataError

_IMAGE_COLUMNS = ("image", "img", "image.bytes")
_LABEL_COLUMNS = ("label", "fine_label")
_ROWS = 1000  # read at once


def load_parquet(path: Path, image_size: int | None) -> DataSet:
    """The images of a parquet file, or of a folder's `train*.parquet` with `test*.parquet` or `validation*.parquet`.

    Where there are no test images a fixed fifth of every class is held out, which `notes` says.

    Raises:
        DataError: no such files, a file that cannot be read, a missing column, or images or labels that do not do.
    """
    import datasets

    files = _parquet_files(path)
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
    """A data set of the Hugging Face hub, by its `ORG/NAME`, fetched once and then taken from the local cache.

    Raises:
        DataError: it cannot be fetched, or has no columns or splits that do.
    """
    import datasets

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


def _parquet_files(path: Path) -> dict[str, list[str]]:
    if path.is_file():
        return {"train": [str(path)]}
    if not path.is_dir():
        raise DataError(f"parquet:PATH takes a file or a folder; got {str(path)!r}, which does not exist")
    files = {
        split: sorted(str(file) for file in path.rglob(f"{split}*.parquet"))
        for split in ("train", "test", "validation")
    }
    if not files["train"]:
        found = sorted(file.name for file in path.rglob("*.parquet"))
        raise DataError(
            f"a folder of parquet files has train*.parquet, and test*.parquet or validation*.parquet; got "
            f"{', '.join(found[:5]) or 'no parquet file'} in {str(path)!r}"
        )
    return {split: members for split, members in files.items() if members}


def _with_rows(files: list[str]) -> list[str]:
    """The files that hold any rows, which `datasets` insists on."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    filled = [file for file in files if pq.read_metadata(file).num_rows]
    if not filled:
        raise DataError(f"a set of images holds at least one; got none in the rows of {', '.join(files)}")
    return filled


def _from_tables(name: str, tables: Mapping[str, Any], image_size: int | None, roots: Sequence[Path]) -> DataSet:
    """A data set of splits as `datasets` gives them; image files that they name lie under one of `roots`."""
    if "train" not in tables:
        raise DataError(f"{name} needs a split called train; got {', '.join(tables)}")
    class_names = getattr(tables["train"].features[_column(name, tables["train"], _LABEL_COLUMNS)], "names", None)
    train = _read(f"{name}, train", tables["train"], image_size, roots)
    test_split = next((split for split in ("test", "validation") if split in tables), None)
    if test_split is None:
        rest, held, note = hold_out(train)
        return DataSet.from_tensors(rest, held, name=name, class_names=class_names, notes=[note])
    test = _read(f"{name}, {test_split}", tables[test_split], image_size, roots)
    return DataSet.from_tensors(train, test, name=name, class_names=class_names)


def _read(name: str, table: Any, image_size: int | None, roots: Sequence[Path]) -> Labelled:
    image_column = _column(name, table, _IMAGE_COLUMNS)
    label_column = _column(name, table, _LABEL_COLUMNS)
    encoded: list[bytes | Path] = []
    labels: list[int] = []
    for rows in table.with_format("arrow").iter(batch_size=_ROWS):
        encoded += _encoded_images(name, rows[image_column].to_pylist(), len(encoded), roots)
        labels += _labels(name, rows[label_column].to_pylist(), len(labels))
    images = ((f"{name}: image {index}", image) for index, image in enumerate(encoded))
    return decode_all(images, image_size), torch.tensor(labels, dtype=torch.int64)


def _column(name: str, table: Any, candidates: tuple[str, ...]) -> str:
    found = next((column for column in candidates if column in table.features), None)
    if found is None:
        raise DataError(
            f"{name} needs a column called {' or '.join(candidates)}; got {', '.join(table.features)}: rename yours"
        )
    return found


def _encoded_images(name: str, values: list[Any], start: int, roots: Sequence[Path]) -> list[bytes | Path]:
    images: list[bytes | Path] = []
    for index, value in enumerate(values, start):
        content = value
        if isinstance(value, Mapping):
            content = value.get("bytes") or _inside(value.get("path"), roots)
        if not isinstance(content, (bytes, Path)):
            path = value.get("path") if isinstance(value, Mapping) else None
            got = f"only {path!r}" if path else type(content).__name__
            raise DataError(
                "an image is its encoded bytes, or a mapping with these under 'bytes', or with a file beside the table "
                f"under 'path'; got {got} for {name}: image {index}"
            )
        images.append(content)
    return images


def _inside(path: Any, roots: Sequence[Path]) -> Path | None:
    """The file that a table names, if it is one under `roots`: an untrusted table reads no others."""
    if not path:
        return None
    file = (roots[0] / str(path)).resolve()  # an absolute path stays what it is
    return file if file.is_file() and any(file.is_relative_to(root.resolve()) for root in roots) else None


def _labels(name: str, values: list[Any], start: int) -> list[int]:
    for index, value in enumerate(values, start):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise DataError(f"labels are integers, the class numbers from 0; got {value!r} for {name}: image {index}")
    return values
