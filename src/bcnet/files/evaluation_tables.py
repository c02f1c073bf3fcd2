"""Tables of the SQLite file of a search's evaluations, and checks of untrusted files.

`others` are costs in further measures, `parts` the scores on parts of the images.

A view could compute forever, and a trigger could change what is written. A journal can end with the name of another
file, which SQLite deletes on rollback; ours name none.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

TABLES = (
    "CREATE TABLE owner (format INTEGER NOT NULL, space TEXT NOT NULL, settings TEXT NOT NULL)",
    "CREATE TABLE evaluations (position INTEGER PRIMARY KEY, widths TEXT NOT NULL UNIQUE, score REAL NOT NULL,"
    " macs INTEGER NOT NULL, params INTEGER NOT NULL, others TEXT NOT NULL DEFAULT '{}',"
    " parts TEXT NOT NULL DEFAULT '[]',"
    " checksum TEXT NOT NULL)",
)
_NAME_END = bytes.fromhex("d9d505f920a163d7")


def names_another_file(store: Path) -> bool:
    """Return whether the journal of a store names another file; to be called before the store is opened.

    Raises:
        OSError: it cannot be read.
    """
    journal = store.with_name(f"{store.name}-journal")
    return journal.is_file() and journal.read_bytes().endswith(_NAME_END)


def has_tables(connection: sqlite3.Connection) -> bool | None:
    """Return whether the file has these tables and nothing else; None for a new file.

    Raises:
        sqlite3.Error: not a database.
    """
    connection.execute("PRAGMA trusted_schema=OFF")
    schema = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return sorted(schema) == sorted((table,) for table in TABLES) if schema else None
