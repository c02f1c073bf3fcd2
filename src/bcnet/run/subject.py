"""The content of `space.json`: model, data and width space of a run. Importing this module loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from bcnet.errors import RunError
from bcnet.files.documents import read_document
from bcnet.measurement import Count
from bcnet.run import names
from bcnet.run.result import Number, TaskResult


class _Part(BaseModel):
    """Mirrors a class that this module may not import; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Group(_Part):
    """A width group (`bcnet.space.WidthGroup`)."""

    name: str
    max_width: Count
    unit: Count
    choices: tuple[Count, ...]
    members: tuple[str, ...]
    bound: NonNegativeInt
    step: NonNegativeInt


class Fixed(_Part):
    """A dimension with a fixed width, and the reason (`bcnet.space.FixedDimension`)."""

    name: str
    dim: NonNegativeInt
    size: NonNegativeInt
    reason: str
    operator: str
    where: str
    remedy: str


class Subject(BaseModel):
    """The model and data of a run, and the model's width space.

    `fingerprint` is the space's and `images` the data's digest; both must be the same when the run is resumed. `input`
    is an `InputFacts` as plain data. `macs`, `params` and `others` are the original's costs. `layers` and `live` hold
    cost terms, as from `LayerTerms.to_dict` and `Polynomial.to_list`.
    """

    model_config = ConfigDict(frozen=True)

    fingerprint: str
    images: str
    input: dict[str, Any]
    task: TaskResult
    macs: NonNegativeInt
    params: NonNegativeInt
    others: dict[str, Number]
    original_widths: tuple[Count, ...]
    groups: tuple[Group, ...]
    fixed: tuple[Fixed, ...]
    layers: tuple[dict[str, Any], ...]
    uncounted: tuple[str, ...]
    live: tuple[list[Any], ...]


def subject_of(document: Mapping[str, Any], path: Path) -> Subject:
    """Return the subject in `document`, the content of the `space.json` of the run in `path`.

    Raises:
        RunError: the document is not valid in this version.
    """
    try:
        return Subject.model_validate(document)
    except ValidationError:
        raise not_of_this_version(path) from None


def not_of_this_version(path: Path) -> RunError:
    """Return the error for the `space.json` of the run in `path`."""
    return RunError(
        f"{path / names.SPACE} is not of this version: repeat the run's `bcnet search` command, which brings it up to "
        "date and repeats nothing that is finished"
    )


def read_subject(path: Path) -> Subject:
    """Return the model, data and space of the run in `path`.

    Raises:
        RunError: the file is missing, corrupt or from another version.
    """
    return subject_of(read_document(path / names.SPACE), path)
