"""JSON documents with a checksum of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bcnet.errors import RunError
from bcnet.files.atomic import write_atomic

_DEEPEST = 32


def read_document(path: Path) -> dict[str, Any]:
    """Return the content of a verified document, without its checksum.

    Raises:
        RunError: missing or modified.
    """
    try:
        document = parse_json(path.read_bytes())
        good = document.pop("sha256") == digest(document)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}: restore it, or start a new run directory") from None
    except (ValueError, AttributeError, KeyError, TypeError):
        good = False
    if not good:
        raise RunError(f"{path} is damaged: its checksum does not match; restore it, or start a new run directory")
    return dict(document)


def parse_json(text: bytes) -> Any:
    """Return the data of an untrusted JSON text, limited in depth so that recursion is safe.

    Raises:
        ValueError: invalid JSON, or more than 32 levels of nesting, which no document here has.
    """
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep to be read") from None
    level = [data]
    for _ in range(_DEEPEST):
        level = [part for value in level for part in _parts(value)]
    if level:
        raise ValueError(f"nested more than {_DEEPEST} levels deep")
    return data


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def digest(document: Mapping[str, Any]) -> str:
    """Return the checksum of a document's content."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write JSON with a checksum of its content, atomically.

    Raises:
        RunError: it cannot be written.
    """
    write_plain(path, {"sha256": digest(document), **document})


def write_plain(path: Path, document: Mapping[str, Any]) -> None:
    """Write plain JSON atomically, for other programs; nothing here reads it.

    Raises:
        RunError: it cannot be written.
    """
    write_atomic(path, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode(errors="surrogatepass"))
