"""A look at the evaluations of a run, also while it writes them."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bcnet.errors import RunError
from bcnet.files.evaluation_tables import has_tables, names_another_file

_PATIENCE = 3.0  # seconds to wait for a writer, who needs milliseconds
_BEST = "SELECT widths, score, macs, params, others FROM evaluations ORDER BY score DESC, macs ASC"
_FROM = "SELECT position, widths, score, macs, params, others FROM evaluations WHERE position >= ? ORDER BY position"
_FAULTS = (sqlite3.Error, KeyError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Best:
    """The best candidate within the budget; higher scores are better."""

    widths: tuple[int, ...]
    score: float
    macs: int
    params: int


@dataclass(frozen=True)
class Evaluated:
    """A candidate as it stands in the file; `position` is its number from zero on.

    `within` says whether it is within the budget.
    """

    position: int
    widths: tuple[int, ...]
    score: float
    macs: int
    params: int
    within: bool


Limits = Mapping[str, float]  # most, by the name of the measure
_Found = TypeVar("_Found")


def look(path: Path, limits: Limits) -> tuple[int, Best | None]:
    """Return how many evaluations there are, and the best within the limits.

    Raises:
        RunError: the file is damaged, or no such store.
    """
    return _read_only(path, lambda connection: _best(connection, limits))


def evaluated_from(path: Path, position: int, limits: Limits) -> tuple[Evaluated, ...]:
    """The evaluations from a position on, in order; from zero all of them.

    Raises:
        RunError: the file is damaged, or no such store.
    """
    return _read_only(path, lambda connection: _from(connection, position, limits))


def _read_only(path: Path, ask: Callable[[sqlite3.Connection], _Found]) -> _Found:
    """Return what a question to the store comes to.

    The file is opened for reading only. A run killed in the middle of a write leaves a journal, which only a writer may
    roll back: then the two files are copied and the copy is read, so that the run's own are left as they are.
    """
    try:
        return _query(path, ask, writable=False)
    except sqlite3.OperationalError:
        journal = path.with_name(f"{path.name}-journal")
        if not journal.exists():
            raise RunError(f"{path} cannot be read: restore it, or start a new run directory") from None
        return _asked_of_copy(path, journal, ask)
    except _FAULTS as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> RunError:
    reason = " ".join(str(error).split())
    return RunError(f"{path} is damaged: {reason}; restore it, or start a new run directory")


def _asked_of_copy(path: Path, journal: Path, ask: Callable[[sqlite3.Connection], _Found]) -> _Found:
    try:
        if names_another_file(path):
            raise ValueError(f"{journal.name} names another file")
        with tempfile.TemporaryDirectory() as folder:
            for file in (path, journal):
                shutil.copy(file, folder)
            return _query(Path(folder) / path.name, ask, writable=True)
    except (*_FAULTS, OSError) as error:
        raise _unreadable(path, error) from None


def _query(path: Path, ask: Callable[[sqlite3.Connection], _Found], *, writable: bool) -> _Found:
    address = f"{path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}"
    with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE)) as connection:
        if not has_tables(connection):
            raise ValueError("it has other tables than ours")
        return ask(connection)


def _best(connection: sqlite3.Connection, limits: Limits) -> tuple[int, Best | None]:
    (count,) = connection.execute("SELECT COUNT(*) FROM evaluations").fetchone()
    for widths, score, macs, params, others in connection.execute(_BEST):
        if _are_within(limits, macs, params, others):
            return int(count), Best(tuple(json.loads(widths)), float(score), int(macs), int(params))
    return int(count), None


def _from(connection: sqlite3.Connection, position: int, limits: Limits) -> tuple[Evaluated, ...]:
    return tuple(
        Evaluated(
            int(place),
            tuple(map(int, json.loads(widths))),
            float(score),
            int(macs),
            int(params),
            within=_are_within(limits, macs, params, others),
        )
        for place, widths, score, macs, params, others in connection.execute(_FROM, (position,))
    )


def _are_within(limits: Limits, macs: int, params: int, others: str) -> bool:
    cost = {"macs": macs, "params": params, **json.loads(others)}
    return all(cost[name] <= most for name, most in limits.items())
