"""Changed copies of a file: its bytes, parts of a JSON document, lines of YAML, SQL rows, database pages."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
DEEP = json.loads("[" * 500 + "]" * 500)
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    0.5,
    1e308,
    -1e-308,
    float("nan"),
    float("inf"),
    10**30,
    10**400,
    "",
    "x" * 100_000,
    "../../outside",
    "/etc/passwd",
    "os:system",
    "no_such_module:factory",
    "\ud800",
    "\x1b]0;title\x07",
    "$x^{$ [/red] <script>",
    [],
    {},
    [[[]]],
    [None] * 10_000,
    DEEP,
)
YAML_SNIPPETS = (
    "lr: &a [*a]\n",
    "a: &a [1, 1]\n"
    + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghij"))
    + "lr: *j\n",
    "lr: !!python/object/apply:os.system ['touch owned']\n",
    "lr: !!python/name:os.system\n",
    "lr: !!int ''\n",
    "lr: !!float x\n",
    "lr: !!bool maybe\n",
    "lr: !!timestamp soon\n",
    "lr: !!binary '?'\n",
    "lr: .nan\n",
    "lr: .inf\n",
    "epochs: 1e400\n",
    "epochs: 0x" + "f" * 5000 + "\n",
    "epochs: " + "9" * 6000 + "\n",
    "lr: 1:30:00\n",
    "lr: " + "[" * 2000 + "\n",
    "? {a: 1}\n: 2\n",
    "<<: {lr: 1}\n",
    "--- a\n--- b\n",
    "%YAML 9.9\n---\n",
    "schedule: {kind: " + "x" * 70_000 + "}\n",
    "\x00",
    "\t",
)


def flipped(content: bytes, rng: random.Random) -> bytes:
    """One to four bits turned over."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncated(content: bytes, rng: random.Random) -> bytes:
    """The beginning, now and then nothing at all."""
    return content[: rng.choice((0, 1, 8, rng.randrange(len(content)), len(content) - 1))]


def inserted(content: bytes, rng: random.Random) -> bytes:
    """Random bytes in between, or behind."""
    at = rng.choice((0, rng.randrange(len(content)), len(content)))
    return content[:at] + rng.randbytes(rng.randint(1, 64)) + content[at:]


def removed(content: bytes, rng: random.Random) -> bytes:
    """A piece left out."""
    at = rng.randrange(len(content))
    return content[:at] + content[at + rng.randint(1, max(1, len(content) // 4)) :]


def repeated(content: bytes, rng: random.Random) -> bytes:
    """A piece twice."""
    at = rng.randrange(len(content))
    piece = content[at : at + rng.randint(1, max(1, len(content) // 4))]
    return content[:at] + piece + content[at:]


def numbered(content: bytes, rng: random.Random) -> bytes:
    """A length or count replaced by one at the edge of its range."""
    size = rng.choice((1, 2, 4, 8))
    value = (rng.choice(_NUMBERS) & ((1 << 8 * size) - 1)).to_bytes(size, rng.choice(("little", "big")))
    at = rng.choice((0, rng.randrange(max(1, len(content) - size))))
    return content[:at] + value + content[at + size :]


def spliced(content: bytes, rng: random.Random) -> bytes:
    """Two pieces swapped."""
    a, b, c = sorted(rng.randrange(len(content) + 1) for _ in range(3))
    return content[:a] + content[b:c] + content[a:b] + content[c:]


BYTES: tuple[Mutation, ...] = (flipped, truncated, inserted, removed, repeated, numbered, spliced)


def json_changed(content: bytes, rng: random.Random) -> bytes:
    """A value, a key or a list of a JSON document replaced by an odd one."""
    document = json.loads(content)
    for _ in range(rng.randint(1, 3)):
        document = _changed(document, rng)
    return json.dumps(document).encode()


def _changed(document: Any, rng: random.Random) -> Any:
    holder = _random_holder(document, rng)
    if holder is None or rng.random() < 0.02:
        return _odd(rng)
    key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    action = rng.random()
    if action < 0.6:
        holder[key] = _odd(rng)
    elif action < 0.75:
        del holder[key]
    elif isinstance(holder, dict):
        holder[rng.choice(("", "\ud800", "__class__", "format", key + "x"))] = holder.pop(key)
    else:
        holder.insert(key, holder[key])
    return document


def _odd(rng: random.Random) -> Any:
    """An odd value of its own, since what comes next may change it."""
    return json.loads(json.dumps(rng.choice(ODD_VALUES)))


def _random_holder(document: Any, rng: random.Random) -> Any:
    found: list[Any] = []
    ahead = [document]
    while ahead:
        place = ahead.pop()
        if isinstance(place, (dict, list)) and place:
            found.append(place)
            ahead += place.values() if isinstance(place, dict) else place[:20]
    return rng.choice(found) if found else None


def yaml_changed(content: bytes, rng: random.Random) -> bytes:
    """A line of YAML replaced by one that parsers stumble over."""
    lines = content.decode().splitlines(keepends=True)
    lines[rng.randrange(len(lines))] = rng.choice(YAML_SNIPPETS)
    return "".join(lines).encode(errors="surrogatepass")


def page_changed(content: bytes, rng: random.Random) -> bytes:
    """A database page zeroed, swapped with another, or changed in a few bytes, often in its header."""
    size = 4096
    pages = [bytearray(content[at : at + size]) for at in range(0, len(content), size)]
    page = rng.randrange(len(pages))
    action = rng.random()
    if action < 0.1:
        pages[page] = bytearray(size)
    elif action < 0.25:
        other = rng.randrange(len(pages))
        pages[page], pages[other] = pages[other], pages[page]
    else:
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(100) if rng.random() < 0.5 else rng.randrange(size)
            pages[page][at] = rng.choice((0, 1, 0xFF, rng.randrange(256)))
    return b"".join(pages)


_STATEMENTS = (
    "UPDATE evaluations SET {column} = {value} WHERE position = {row}",
    "UPDATE owner SET {owner} = {value}",
    "DELETE FROM evaluations WHERE position = {row}",
    "DELETE FROM owner",
    "INSERT INTO owner VALUES (2, 'x', 'y')",
    "INSERT INTO evaluations VALUES ({row} + 100, '[1]', {value}, 1, 1, '[]', NULL, 'x')",
    "UPDATE evaluations SET position = position + 100 WHERE position >= {row}",
    "CREATE TRIGGER t AFTER INSERT ON evaluations BEGIN DELETE FROM evaluations; END",
    "CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    "DROP TABLE evaluations",
    "ALTER TABLE evaluations RENAME COLUMN score TO points",
    "CREATE TABLE more (x)",
    "PRAGMA journal_mode = wal",
    "PRAGMA user_version = 7",
)


def sql_changed(path: Path, rng: random.Random) -> None:
    """A database changed by a statement, in place."""
    values = ("NULL", "1e308", "-1", "9e999", "'[1, 2'", "''", "x'ff00ff'", "char(0)", "CAST(x'c3' AS TEXT)", "1")
    statement = rng.choice(_STATEMENTS).format(
        column=rng.choice(("widths", "score", "macs", "params", "batches", "upper", "checksum")),
        owner=rng.choice(("format", "space", "settings")),
        value=rng.choice(values),
        row=rng.randrange(12),
    )
    with closing(sqlite3.connect(path)) as connection:
        try:
            with connection:
                connection.execute(statement)
        except sqlite3.Error:  # a constraint of the table: as good as a change of the file's bytes
            return
