"""Reliable files of a run: written atomically, verified when read, never pickled."""

from typing import TYPE_CHECKING, Any

from bcnet.files.atomic import make_folder, write_atomic

if TYPE_CHECKING:
    from bcnet.files.tensors import read_latest, read_tensors, write_tensors

__all__ = ["make_folder", "read_latest", "read_tensors", "write_atomic", "write_tensors"]


def __getattr__(name: str) -> Any:
    # lazy, since `bcnet status` reads documents only, without torch
    if name in __all__:
        from bcnet.files import tensors

        return getattr(tensors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
