"""Errors sent from one process to another, as JSON."""

from __future__ import annotations

from typing import Any

from bcnet import errors
from bcnet.errors import BCNetError, ProcessError


def failure_document(error: Exception) -> dict[str, Any]:
    """Return the error as plain data under "failure", the arguments of `rebuilt_error`."""
    return {"failure": [type(error).__name__, str(error)]}


def rebuilt_error(kind: str, message: str) -> BCNetError:
    """Return the error of another process."""
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, BCNetError):
        return known(message)
    return ProcessError(f"another process of this run failed with {kind}: {message}")
