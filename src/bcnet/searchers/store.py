"""SQLite store of every evaluation of a search, written as it happens, so that a search resumes by replay.

The checksum of each row covers the row and the previous checksum; the first covers the owner. Changed, removed or
reordered rows are therefore detected when the file is opened. Rows missing at the end, as after a power failure, are
scored again. Views, triggers and journals in an untrusted file are rejected.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from bcnet.errors import RunError
from bcnet.files.evaluation_tables import TABLES, has_tables, names_another_file
from bcnet.searchers.result import Candidate
from bcnet.space import Cost, WidthSpace

_FORMAT = 5
_COLUMNS = "position, widths, score, macs, params, others, parts"
_INSERT = f"INSERT INTO evaluations ({_COLUMNS}, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_MAKE_ROOM = "make room or give write access, then run the same command again"


class EvaluationStore:
    """Evaluations of one space under one score, on disk.

    `settings` describes everything the score depends on (weights, validation data, metric). A file that was written
    under other settings, or for another space, is refused, since its scores are not comparable.


    Raises:
        RunError: the file belongs to another space or other settings, is not a store, or was modified.
    """

    def __init__(self, path: str | Path, space: WidthSpace, settings: str = "") -> None:
        self.path = Path(path)
        self._space = space
        self._fingerprint = space.fingerprint()
        self._settings = settings
        self._evaluations: list[Candidate] = []
        self._check_journal()
        try:
            self._connection = sqlite3.connect(self.path)
        except sqlite3.Error as error:
            raise self._unusable_error(error) from error
        try:
            self._open()
        except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
            self._connection.close()
            raise self._unusable_error(error) from error
        except RunError:
            self._connection.close()
            raise

    def _unusable_error(self, error: Exception) -> RunError:
        full = "disk is full" in str(error) or "readonly" in str(error)
        rule = _MAKE_ROOM if full else "give the path of one, or a new file"
        reason = " ".join(str(error).split())
        return RunError(f"{self.path} cannot be used as an evaluation store ({reason}): {rule}")

    def _check_journal(self) -> None:
        try:
            foreign = names_another_file(self.path)
        except OSError as error:
            raise self._unusable_error(error) from None
        if foreign:
            raise self._unusable_error(ValueError(f"{self.path.name}-journal names another file"))

    def _open(self) -> None:
        self._connection.execute("PRAGMA synchronous=EXTRA")
        ours = has_tables(self._connection)
        if ours is None:
            self._create()
        elif not ours:
            raise RunError(
                f"{self.path} is an SQLite file but no evaluation store: give the path of one, or a new file"
            )
        ((verdict,),) = self._connection.execute("PRAGMA integrity_check(1)")
        if verdict != "ok":
            raise self._unusable_error(ValueError(verdict))
        self._check_owner()
        self._last_checksum = self._seal(["owner", _FORMAT, self._fingerprint, self._settings])
        self._read()

    def _create(self) -> None:
        """Create both tables and the owner in one transaction, so that an interrupted call leaves no partial store."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for statement in TABLES:
                self._connection.execute(statement)
            owner = (_FORMAT, self._fingerprint, self._settings)
            self._connection.execute("INSERT INTO owner VALUES (?, ?, ?)", owner)

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
        query = f"SELECT {_COLUMNS}, checksum FROM evaluations ORDER BY position"
        for number, (*row, checksum) in enumerate(self._connection.execute(query)):
            if row[0] != number or checksum != self._seal([self._last_checksum, *row]):
                raise RunError(f"{self.path} has been changed from outside at evaluation {number}: use a new file")
            self._evaluations.append(self._candidate(*row))
            self._last_checksum = checksum

    def _candidate(
        self,
        number: int,
        text: str,
        score: float,
        macs: int,
        params: int,
        others: str,
        parts: str,
    ) -> Candidate:
        """Return a row as a candidate, validated: a correct checksum does not prove that this library wrote it."""
        try:
            beside = json.loads(others)
            if not isinstance(beside, dict):
                raise TypeError("costs are kept by measure")
            cost = Cost(macs, params, beside)
            candidate = Candidate(tuple(json.loads(text)), score, cost, tuple(json.loads(parts)))
            self._space.check(candidate.widths)
            good = all(map(math.isfinite, (score, *cost.others.values(), *candidate.parts)))
            here = self._space.cost(candidate.widths)  # a space read from files cannot compute custom measures
            good = good and all(cost[name] == here[name] for name in ("macs", "params", *here.others))
        except (ValueError, TypeError, KeyError, RecursionError):
            good = False
        if not good:
            raise RunError(f"{self.path} holds no candidate of this space at evaluation {number}: use a new file")
        return candidate

    def _seal(self, content: Sequence[Any]) -> str:
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def check_space(self, space: WidthSpace) -> None:
        """Raise RunError unless the store was opened for `space`."""
        if space.fingerprint() != self._fingerprint:
            raise RunError(f"{self.path} was opened for another space: open it with the space that is searched")

    @property
    def evaluations(self) -> tuple[Candidate, ...]:
        """Every evaluation in the order in which it was made."""
        return tuple(self._evaluations)

    def add(self, candidate: Candidate) -> None:
        """Write one evaluation; it is on disk when the call returns.

        Raises:
            RunError: the file cannot be written.
        """
        cost = candidate.cost
        row = (
            len(self._evaluations),
            json.dumps(list(candidate.widths)),
            candidate.score,
            cost.macs,
            cost.params,
            json.dumps(dict(cost.others)),
            json.dumps(list(candidate.parts)),
        )
        checksum = self._seal([self._last_checksum, *row])
        try:
            with self._connection:
                self._connection.execute(_INSERT, (*row, checksum))
        except sqlite3.Error as error:
            raise RunError(
                f"{self.path} could not take another evaluation: {error}: those before are kept; {_MAKE_ROOM}"
            ) from error
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
