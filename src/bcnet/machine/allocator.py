"""glibc's memory allocator, told to keep large blocks.

By default glibc gives every large tensor back to the kernel when it is freed, and gets it again, zeroed page by page,
a moment later. With `mallopt(M_MMAP_THRESHOLD)` and `mallopt(M_TRIM_THRESHOLD)` raised the process keeps its largest
footprint instead. That concerns the whole process, so a library call leaves it alone: the command line asks for it, and
a program of yours may call `keep_memory()` once at its start. Results do not depend on it.
"""

from __future__ import annotations

import ctypes
import os

# Of malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_THRESHOLDS = (1 << 30, 32 << 20)  # older versions refuse more than 32 MiB for the second
_CHOSEN_BY_THE_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")


_kept = False  # of the process, as the allocator is


def keeps_memory() -> bool:
    """Return whether this process keeps freed memory: by `keep_memory`, or because the environment says so."""
    return _kept or bool(os.environ.get(_CHOSEN_BY_THE_USER[0]))


def keep_memory() -> bool:
    """Let glibc keep what is freed; whether it will.

    Not where another C library is at work, nor where the environment has chosen: MALLOC_MMAP_THRESHOLD_,
    MALLOC_TRIM_THRESHOLD_, GLIBC_TUNABLES, or another allocator by LD_PRELOAD.
    """
    if any(os.environ.get(name) for name in _CHOSEN_BY_THE_USER):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - raises where this is no glibc
        mallopt = library.mallopt
    except (OSError, AttributeError, TypeError):
        return False
    mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    mallopt.restype = ctypes.c_int
    global _kept
    large = any(mallopt(_M_MMAP_THRESHOLD, threshold) for threshold in _THRESHOLDS)
    _kept = large and bool(mallopt(_M_TRIM_THRESHOLD, _THRESHOLDS[0]))
    return _kept
