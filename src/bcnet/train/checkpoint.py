"""Files that survive: written atomically, verified on load, never a pickle.

A tensor file is one safetensors file. Its metadata holds one JSON document, `{"sha256", "identity", "state"}`. The
digest is that of the whole file with the digest's own 64 characters replaced by zeros, so every byte is covered.
`identity` says what the file belongs to: a good file in the wrong place is refused like a damaged one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as format_safetensors
from torch import nn

from bcnet.errors import RunError

Tensors = dict[str, torch.Tensor]
_ZEROS = "0" * 64
_log = logging.getLogger(__name__)


def write_atomic(path: Path, content: bytes, *, keep_previous: bool = False) -> None:
    """Replace `path` by `content` so that a reader, or a power failure, meets the old file or the new one whole.

    With `keep_previous` the old file stays as `previous_of(path)`.

    Raises:
        RunError: the file system refuses: full, read-only, gone.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep_previous and path.exists():
            os.replace(path, previous_of(path))
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise RunError(
            f"{path} cannot be written: {error.strerror}: what was finished before is kept; "
            "make room or give write access, then run the same command again"
        ) from None


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, so that they outlast a power failure; one that exists will do.

    Raises:
        RunError: the file system refuses, or a file is in the way.
    """
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        for folder in new:
            _sync_directory(folder.parent)
    except OSError as error:
        raise RunError(f"folder {path} cannot be made: {error.strerror}: make room, or give another place") from None


def previous_of(path: Path) -> Path:
    """Where the checkpoint before `path` is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def write_tensors(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    identity: Mapping[str, Any],
    state: Mapping[str, Any] | None = None,
    *,
    keep_previous: bool = False,
) -> None:
    """Write tensors and a JSON state as one verified file. Equal content gives equal bytes.

    Raises:
        RunError: the file system refuses.
    """
    content = format_safetensors(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
        metadata={"bcnet": _document(_ZEROS, identity, state or {})},
    )
    digest = hashlib.sha256(content).hexdigest()
    write_atomic(path, content.replace(_ZEROS.encode(), digest.encode(), 1), keep_previous=keep_previous)


def read_tensors(path: Path, identity: Mapping[str, Any]) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the state of a file that `write_tensors` wrote for the same identity.

    Raises:
        RunError: missing, damaged, or written for something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}: restore it, or start a new run directory") from None
    document = _verified_document(path, content)
    try:
        tensors = parse_safetensors(content)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError):  # a good checksum on what none of us wrote
        raise _damaged(path) from None
    if document["identity"] != dict(identity):
        raise RunError(
            f"{path} belongs to {json.dumps(document['identity'])}; expected {json.dumps(dict(identity))}: "
            "put the right file back, or start a new run directory"
        )
    return tensors, document["state"]


def read_latest(path: Path, identity: Mapping[str, Any]) -> tuple[Tensors, dict[str, Any]] | None:
    """The newest good checkpoint: `path`, else the previous one, else None where there was never any.

    Raises:
        RunError: there are files, and none is good.
    """
    faults: list[RunError] = []
    for candidate in (path, previous_of(path)):
        if candidate.exists():
            try:
                found = read_tensors(candidate, identity)
            except RunError as error:
                faults.append(error)
                continue
            for fault in faults:
                _log.warning("%s; going on from the checkpoint before it", fault)
            return found
    if faults:
        raise faults[0]
    return None


def load_module(module: nn.Module, tensors: Mapping[str, torch.Tensor], source: Path | str) -> None:
    """Put the tensors of a file, or of what people know as `source`, into a module.

    Raises:
        RunError: they are not its own: names or shapes differ.
    """
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{source} does not fit this model: {reason}: start a new run") from None


def _document(digest: str, identity: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    return json.dumps({"sha256": digest, "identity": dict(identity), "state": dict(state)}, separators=(",", ":"))


def _verified_document(path: Path, content: bytes) -> dict[str, Any]:
    damaged = _damaged(path)
    try:
        (length,) = struct.unpack("<Q", content[:8])
        header = content[8 : 8 + length]
        document = json.loads(json.loads(header)["__metadata__"]["bcnet"])
        digest = document["sha256"].encode("ascii")
        parts = (document["identity"], document["state"])
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged from None
    if len(digest) != len(_ZEROS) or header.count(digest) != 1 or not all(isinstance(p, dict) for p in parts):
        raise damaged
    blank = content[: 8 + length].replace(digest, _ZEROS.encode(), 1) + content[8 + length :]
    if hashlib.sha256(blank).hexdigest().encode() != digest:
        raise damaged
    return dict(document)


def _damaged(path: Path) -> RunError:
    return RunError(f"{path} is damaged or not ours: its checksum does not match; restore it or delete it")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
