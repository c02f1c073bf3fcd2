"""JSON documents that carry a checksum of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bcnet.errors import RunError


def read_document(path: Path) -> dict[str, Any]:
    """The content of a checked document, without its checksum.

    Raises:
        RunError: missing, or changed since.
    """
    try:
        document = json.loads(path.read_bytes())
        good = document.pop("sha256") == digest(document)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}: restore it, or start a new run directory") from None
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        good = False
    if not good:
        raise RunError(f"{path} is damaged: its checksum does not match; restore it, or start a new run directory")
    return dict(document)


def digest(document: Mapping[str, Any]) -> str:
    """The checksum of a document's content."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
