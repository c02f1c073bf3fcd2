"""Every evaluation of a search in one SQLite file, written as it happens, so that a search resumes by replay.

Each row's checksum covers the row and the checksum before it: rows that were changed, removed from the middle or
reordered are noticed when the file is opened.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Any

from bcnet.errors import RunError
from bcnet.searchers.result import Candidate
from bcnet.space import Cost, Widths, WidthSpace

_FORMAT = 1
_TABLES = (
    "CREATE TABLE owner (format INTEGER NOT NULL, space TEXT NOT NULL, settings TEXT NOT NULL)",
    "CREATE TABLE evaluations (position INTEGER PRIMARY KEY, widths TEXT NOT NULL UNIQUE, score REAL NOT NULL,"
    " macs INTEGER NOT NULL, params INTEGER NOT NULL, checksum TEXT NOT NULL)",
)


class EvaluationStore:
    """Evaluations of one space under one score, on disk.

    `settings` describes what the score depends on (weights, validation data, metric): a file written under other
    settings, or for another space, is refused, since its scores would mean something else.

    Example: `with EvaluationStore(path, space, settings) as store: search_widths(space, score, budget, store=store)`.

    Raises:
        RunError: the file belongs to another space or other settings, is no such store, or has been tampered with.
    """

    def __init__(self, path: str | Path, space: WidthSpace, settings: str = "") -> None:
        self.path = Path(path)
        self._fingerprint, self._settings = space.fingerprint(), settings
        self._evaluations: list[Candidate] = []
        self._last_checksum = ""
        try:
            self._connection = sqlite3.connect(self.path)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        try:
            self._open()
        except sqlite3.Error as error:
            self._connection.close()
            raise self._unusable(error) from error
        except RunError:
            self._connection.close()
            raise

    def _unusable(self, error: Exception) -> RunError:
        rule = "give the path of one, or a new file"
        return RunError(f"{self.path} cannot be used as an evaluation store ({error}): {rule}")

    def _open(self) -> None:
        self._connection.execute("PRAGMA synchronous=FULL")
        tables = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            with self._connection:
                for statement in _TABLES:
                    self._connection.execute(statement)
                owner = (_FORMAT, self._fingerprint, self._settings)
                self._connection.execute("INSERT INTO owner VALUES (?, ?, ?)", owner)
        elif tables != {"owner", "evaluations"}:
            raise RunError(
                f"{self.path} is an SQLite file but no evaluation store: give the path of one, or a new file"
            )
        self._check_owner()
        self._read()

    def _check_owner(self) -> None:
        rows = self._connection.execute("SELECT format, space, settings FROM owner").fetchall()
        if len(rows) != 1 or rows[0][0] != _FORMAT:
            raise RunError(f"{self.path} is not an evaluation store of format {_FORMAT}: use a new file")
        _, fingerprint, settings = rows[0]
        for what, found, wanted in (
            ("space", fingerprint, self._fingerprint),
            ("settings", settings, self._settings),
        ):
            if found != wanted:
                raise RunError(
                    f"{self.path} holds evaluations of another {what} ({found!r}, here {wanted!r}): use a new file, "
                    f"or the {what} it was written with"
                )

    def _read(self) -> None:
        query = "SELECT position, widths, score, macs, params, checksum FROM evaluations ORDER BY position"
        for number, (position, text, score, macs, params, checksum) in enumerate(self._connection.execute(query)):
            expected = self._checksum(number, text, score, macs, params)
            if position != number or checksum != expected:
                raise RunError(f"{self.path} has been changed from outside at evaluation {number}: use a new file")
            self._evaluations.append(Candidate(tuple(json.loads(text)), score, Cost(macs, params)))
            self._last_checksum = checksum

    def _checksum(self, position: int, widths: str, score: Any, macs: Any, params: Any) -> str:
        row = json.dumps([self._last_checksum, self._fingerprint, position, widths, score, macs, params])
        return hashlib.sha256(row.encode()).hexdigest()

    def check_space(self, space: WidthSpace) -> None:
        """Raise RunError unless the store was opened for `space`."""
        if space.fingerprint() != self._fingerprint:
            raise RunError(f"{self.path} was opened for another space: open it with the space that is searched")

    @property
    def evaluations(self) -> tuple[Candidate, ...]:
        """Every evaluation, in the order in which they were made."""
        return tuple(self._evaluations)

    def scores(self) -> dict[Widths, float]:
        """The known scores, for replay."""
        return {c.widths: c.score for c in self._evaluations}

    def add(self, candidate: Candidate) -> None:
        """Write one evaluation; on return it is on disk.

        Raises:
            RunError: the file cannot be written.
        """
        text = json.dumps(list(candidate.widths))
        macs, params = candidate.cost
        checksum = self._checksum(len(self._evaluations), text, candidate.score, macs, params)
        row = (len(self._evaluations), text, candidate.score, macs, params, checksum)
        try:
            with self._connection:
                self._connection.execute("INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise RunError(f"{self.path} could not take another evaluation: {error}") from error
        self._evaluations.append(candidate)
        self._last_checksum = checksum

    def close(self) -> None:
        """Close the file; further evaluations are refused."""
        self._connection.close()

    def __enter__(self) -> EvaluationStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
