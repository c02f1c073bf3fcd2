"""Parse widths from a list, mapping, JSON file, run directory or "published:VARIANT"."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from bcnet.errors import WidthError
from bcnet.models import published
from bcnet.run import names
from bcnet.space import Widths, WidthSpace

WidthsLike = Sequence[int] | Mapping[str, int] | str | Path
_RULE = (
    "--widths are whole numbers with commas, one per group (16,24,24), a .json file of them, a run directory, or "
    "published:VARIANT"
)


def resolve_widths(given: WidthsLike, space: WidthSpace, model: nn.Module, name: str = "") -> Widths:
    """Return the widths given by `given`, one for each group of `space`, which was traced from the model called `name`.

    - numbers in the order of the groups: a sequence, or comma-separated text;
    - a mapping of every group's name to its width;
    - a file: JSON of either, or a run's `result.json` or `architecture.json`; or the run directory;
    - `published:VARIANT`: widths published by the authors, such as `published:0.5x` for vgg19.

    Raises:
        WidthError: none of these, or widths that do not fit the space.
        ModelError: no published widths for the model or variant.
    """
    if isinstance(given, Mapping):
        found = _by_group(given, space, "widths by group")
    elif isinstance(given, (str, os.PathLike)):
        found = _from_text(str(given), space, model, name)
    else:
        found = tuple(given)
    space.check(found)
    return found


def _from_text(text: str, space: WidthSpace, model: nn.Module, name: str) -> Widths:
    kind, colon, variant = text.partition(":")
    if kind == "published" and colon:
        return published.widths(space, model, *published.entry_of(name, variant))
    path = Path(text).expanduser()
    if path.is_dir():
        path = path / names.RESULT
    if path.suffix == ".json":
        return _from_file(path, space)
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise WidthError(f"{_RULE}; got {text!r}") from None


def _from_file(path: Path, space: WidthSpace) -> Widths:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WidthError(f"{_RULE}; {path} cannot be read: {error}") from None
    if isinstance(document, dict):
        return _by_group(_table(document), space, str(path))
    if isinstance(document, list):
        return tuple(document)
    raise WidthError(f"{_RULE}; {path} holds a {type(document).__name__}")


def _table(document: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping of groups to widths from a result, an architecture, or such a mapping."""
    if isinstance(document.get("widths"), dict):
        return dict(document["widths"])
    groups = document.get("groups")
    if isinstance(groups, list) and all(isinstance(g, dict) and {"name", "width"} <= g.keys() for g in groups):
        return {g["name"]: g["width"] for g in groups}
    return document


def _by_group(table: Mapping[str, Any], space: WidthSpace, place: str) -> Widths:
    groups = [group.name for group in space.groups]
    wrong = sorted(set(groups) ^ set(table))
    if wrong:
        raise WidthError(
            f"{place}: widths name every group of the network, {', '.join(groups[:4])} and so on, and no other; "
            f"differing here: {', '.join(map(str, wrong[:4]))}"
        )
    return tuple(table[name] for name in groups)
