"""Configuration of glibc's allocator to keep large blocks.

By default glibc returns every large tensor to the kernel when it is freed, and requests it again soon after, zeroed
page by page. With higher `mallopt(M_MMAP_THRESHOLD)` and `mallopt(M_TRIM_THRESHOLD)` the process keeps its largest
footprint instead. This affects the whole process, so library calls do not change it: the command line does, and your
program can call `keep_memory()` once at its start. Results do not depend on it.
"""

from __future__ import annotations

import ctypes
import os

# from malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_THRESHOLDS = (1 << 30, 32 << 20)  # older versions refuse more than 32 MiB for the second
_CHOSEN_BY_THE_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")


_kept = False  # state of the process, like the allocator


def keeps_memory() -> bool:
    """Return whether this process keeps freed memory, through `keep_memory` or the environment."""
    return _kept or bool(os.environ.get(_CHOSEN_BY_THE_USER[0]))


def keep_memory() -> bool:
    """Make glibc keep freed memory; return whether it will.

    Does nothing with another C library, or if the environment configures the allocator: MALLOC_MMAP_THRESHOLD_,
    MALLOC_TRIM_THRESHOLD_, GLIBC_TUNABLES, or LD_PRELOAD.
    """
    if any(os.environ.get(name) for name in _CHOSEN_BY_THE_USER):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - raises if this is not glibc
        mallopt = library.mallopt
    except (OSError, AttributeError, TypeError):
        return False
    mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    mallopt.restype = ctypes.c_int
    global _kept
    large = any(mallopt(_M_MMAP_THRESHOLD, threshold) for threshold in _THRESHOLDS)
    _kept = large and bool(mallopt(_M_TRIM_THRESHOLD, _THRESHOLDS[0]))
    return _kept
