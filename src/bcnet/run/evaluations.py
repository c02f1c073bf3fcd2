"""Read the evaluations of a run, even while it writes them."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bcnet.errors import RunError
from bcnet.files.evaluation_tables import has_tables, names_another_file

_PATIENCE = 3.0  # seconds to wait for the writer, which needs milliseconds
_BEST = "SELECT widths, score, macs, params, others FROM evaluations ORDER BY score DESC, macs ASC"
_FAULTS = (sqlite3.Error, KeyError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Best:
    """The best feasible candidate; higher scores are better."""

    widths: tuple[int, ...]
    score: float
    macs: int
    params: int


Limits = Mapping[str, float]  # upper limit by name of the measure
_Found = tuple[int, Best | None]


def summarise_evaluations(path: Path, limits: Limits) -> _Found:
    """Return the number of evaluations and the best one within the limits, even while a run writes them.

    The file is opened read-only. A run killed during a write leaves a journal that only a writer may roll back. In that
    case both files are copied and the copy is read, so that the run's own files are unchanged.

    Raises:
        RunError: the file is corrupt or not an evaluation store.
    """
    try:
        return _query(path, limits, writable=False)
    except sqlite3.OperationalError:
        journal = path.with_name(f"{path.name}-journal")
        if not journal.exists():
            raise RunError(f"{path} cannot be read: restore it, or start a new run directory") from None
        return _read_copy(path, journal, limits)
    except _FAULTS as error:
        raise _unreadable_error(path, error) from None


def _unreadable_error(path: Path, error: Exception) -> RunError:
    reason = " ".join(str(error).split())
    return RunError(f"{path} is damaged: {reason}; restore it, or start a new run directory")


def _read_copy(path: Path, journal: Path, limits: Limits) -> _Found:
    try:
        if names_another_file(path):
            raise ValueError(f"{journal.name} names another file")
        with tempfile.TemporaryDirectory() as folder:
            for file in (path, journal):
                shutil.copy(file, folder)
            return _query(Path(folder) / path.name, limits, writable=True)
    except (*_FAULTS, OSError) as error:
        raise _unreadable_error(path, error) from None


def _query(path: Path, limits: Limits, *, writable: bool) -> _Found:
    address = f"{path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}"
    with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE)) as connection:
        if not has_tables(connection):
            raise ValueError("it has other tables than ours")
        return _best(connection, limits)


def _best(connection: sqlite3.Connection, limits: Limits) -> _Found:
    (count,) = connection.execute("SELECT COUNT(*) FROM evaluations").fetchone()
    for widths, score, macs, params, others in connection.execute(_BEST):
        if _are_within(limits, macs, params, others):
            return int(count), Best(tuple(json.loads(widths)), float(score), int(macs), int(params))
    return int(count), None


def _are_within(limits: Limits, macs: int, params: int, others: str) -> bool:
    cost = {"macs": macs, "params": params, **json.loads(others)}
    return all(cost[name] <= most for name, most in limits.items())
