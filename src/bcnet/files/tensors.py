"""Tensor files: written atomically, verified on load, never pickled.

A tensor file is a safetensors file. Its metadata hold one JSON document, `{"sha256", "identity", "state"}`. The digest
covers every byte: it is that of the whole file with its own 64 characters replaced by zeros. `identity` says what the
file belongs to: a valid file in the wrong place is refused like a corrupt one.
"""

from __future__ import annotations

import hashlib
import json
import logging
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
from bcnet.files.atomic import previous_of, write_atomic

Tensors = dict[str, torch.Tensor]
_ZEROS = "0" * 64
_log = logging.getLogger(__name__)


def digest_of(tensors: Mapping[str, torch.Tensor], text: str = "") -> str:
    """Return 12 hexadecimal digits for named tensors, in the order of their names, and some text."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


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
        RunError: it cannot be written.
    """
    content = format_safetensors(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
        metadata={"bcnet": _document(_ZEROS, identity, state or {})},
    )
    digest = hashlib.sha256(content).hexdigest()
    write_atomic(path, content.replace(_ZEROS.encode(), digest.encode(), 1), keep_previous=keep_previous)


def read_tensors(path: Path, identity: Mapping[str, Any]) -> tuple[Tensors, dict[str, Any]]:
    """Return tensors and state of a file that `write_tensors` wrote with the same identity.

    Raises:
        RunError: missing, corrupt, or written for something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}: restore it, or start a new run directory") from None
    document = _verified_document(path, content)
    try:
        tensors = parse_safetensors(content)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError):  # a valid checksum on a foreign file
        raise _damage_error(path) from None
    if document["identity"] != dict(identity):
        raise RunError(
            f"{path} belongs to {json.dumps(document['identity'])}; expected {json.dumps(dict(identity))}: "
            "put the right file back, or start a new run directory"
        )
    return tensors, document["state"]


def read_latest(path: Path, identity: Mapping[str, Any]) -> tuple[Tensors, dict[str, Any]] | None:
    """Return the newest valid checkpoint, `path` or the previous one; None if there is none.

    Raises:
        RunError: there are files, but none is valid.
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
                _log.warning("%s; resuming from the checkpoint before it", fault)
            return found
    if faults:
        raise faults[0]
    return None


def load_module(module: nn.Module, tensors: Mapping[str, torch.Tensor], source: Path | str) -> None:
    """Load the tensors of `source` into a module.

    Raises:
        RunError: names or shapes differ.
    """
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{source} does not fit this model: {reason}: start a new run") from None


def _document(digest: str, identity: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    return json.dumps({"sha256": digest, "identity": dict(identity), "state": dict(state)}, separators=(",", ":"))


def _verified_document(path: Path, content: bytes) -> dict[str, Any]:
    damaged = _damage_error(path)
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


def _damage_error(path: Path) -> RunError:
    return RunError(f"{path} is damaged or not ours: its checksum does not match; restore it or delete it")
