"""The evaluation store: replay, and refusal of what it cannot trust."""

import hashlib
import json
import sqlite3
import struct

import pytest

from bcnet.errors import RunError
from bcnet.files.evaluation_tables import TABLES
from bcnet.searchers import EvaluationStore, Random, search_widths
from bcnet.space import Budget
from bcnet.testing import toy_space

HALF = Budget(macs=0.5)
COST = toy_space(4).cost((1, 1, 1, 1))


def filled(path, space):
    with EvaluationStore(path, space, "weights 1") as store:
        return search_widths(space, lambda w: sum(w) / 3, HALF, searcher=Random(evaluations=12), store=store)


def test_what_was_written_is_read_back(tmp_path):
    space = toy_space(4)
    result = filled(tmp_path / "e.sqlite", space)
    with EvaluationStore(tmp_path / "e.sqlite", space, "weights 1") as store:
        assert store.evaluations == result.evaluations
        assert store.evaluations == result.evaluations


def test_every_evaluation_is_on_disk_before_the_next_begins(tmp_path):
    space, path = toy_space(4), tmp_path / "e.sqlite"
    counts = []

    def score(widths):
        with sqlite3.connect(path) as other:
            counts.append(other.execute("SELECT count(*) FROM evaluations").fetchone()[0])
        other.close()
        return float(sum(widths))

    with EvaluationStore(path, space) as store:
        search_widths(space, score, HALF, searcher=Random(evaluations=8), store=store)
    assert counts == list(range(8))


def test_another_space_or_other_settings_are_refused(tmp_path):
    space = toy_space(4)
    filled(tmp_path / "e.sqlite", space)
    with pytest.raises(RunError, match="another space"):
        EvaluationStore(tmp_path / "e.sqlite", toy_space(5), "weights 1")
    with pytest.raises(RunError, match=r"another settings.*weights 1.*weights 2"):
        EvaluationStore(tmp_path / "e.sqlite", space, "weights 2")
    with (
        EvaluationStore(tmp_path / "e.sqlite", space, "weights 1") as store,
        pytest.raises(RunError, match="opened for another space"),
    ):
        search_widths(toy_space(5), lambda _: 1.0, HALF, store=store)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE evaluations SET score = score + 1 WHERE position = 5",
        "UPDATE evaluations SET macs = 1 WHERE position = 11",
        "DELETE FROM evaluations WHERE position = 3",
        "DELETE FROM evaluations WHERE position = 0",
    ],
)
def test_tampered_rows_are_refused(tmp_path, statement):
    space, path = toy_space(4), tmp_path / "e.sqlite"
    filled(path, space)
    with sqlite3.connect(path) as other:
        other.execute(statement)
    other.close()
    with pytest.raises(RunError, match="changed from outside at evaluation"):
        EvaluationStore(path, space, "weights 1")


def test_other_files_are_refused(tmp_path):
    space = toy_space(4)
    (tmp_path / "text").write_text("no database at all, but long enough to be looked at " * 40)
    with pytest.raises(RunError, match="cannot be used as an evaluation store"):
        EvaluationStore(tmp_path / "text", space)
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE things (name TEXT)")
    other.close()
    with pytest.raises(RunError, match="no evaluation store"):
        EvaluationStore(tmp_path / "other", space)
    with pytest.raises(RunError, match="cannot be used"):
        EvaluationStore(tmp_path, space)


def test_a_closed_store_takes_nothing(tmp_path):
    space = toy_space(4)
    store = EvaluationStore(tmp_path / "e.sqlite", space)
    store.close()
    with pytest.raises(RunError, match="could not take another evaluation"):
        search_widths(space, lambda _: 1.0, HALF, searcher=Random(evaluations=2), store=store)


PLANTED = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON evaluations BEGIN UPDATE evaluations SET score = 1; END",
    "view": "CREATE VIEW v AS SELECT * FROM evaluations",
    "index": "CREATE INDEX i ON evaluations (abs(score))",
}


@pytest.mark.parametrize("statement", PLANTED.values(), ids=PLANTED)
def test_a_store_with_anything_that_acts_is_refused(tmp_path, statement):
    space, path = toy_space(4), tmp_path / "e.sqlite"
    filled(path, space)
    with sqlite3.connect(path) as other:
        other.execute(statement)
    other.close()
    with pytest.raises(RunError, match="no evaluation store"):
        EvaluationStore(path, space, "weights 1")


def test_a_journal_that_names_another_file_is_never_played_back(tmp_path):
    space, path, precious = toy_space(4), tmp_path / "e.sqlite", tmp_path / "precious"
    filled(path, space)
    precious.write_text("mine")
    name = str(precious).encode()
    end = name + struct.pack(">II", len(name), sum(name)) + bytes.fromhex("d9d505f920a163d7")
    head = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", 0, 1, path.stat().st_size // 4096, 512, 4096)
    (tmp_path / "e.sqlite-journal").write_bytes(head.ljust(512, b"\0") + end)
    with pytest.raises(RunError, match=r"e\.sqlite-journal names another file"):
        EvaluationStore(path, space, "weights 1")
    assert precious.read_text() == "mine"


@pytest.mark.parametrize(
    "row",
    [
        ("[1, 2]", 1.0, 3, 4, "{}", "[]"),
        ("[1, 2, 3", 1.0, 3, 4, "{}", "[]"),
        ("7", 1.0, 3, 4, "{}", "[]"),
        ("[" * 100_000, 1.0, 3, 4, "{}", "[]"),
        ("[1, 1, 1, 1]", float("inf"), 3, 4, "{}", "[]"),
        ("[1, 1, 1, 1]", 1.0, 3, 4, "{}", "[]"),
        ("[1, 1, 1, 1]", "high", 3, 4, "{}", "[]"),
        ("[1, 1, 1, 1]", 1.0, *COST, "{}", "[1.0, NaN]"),
        ("[1, 1, 1, 1]", 1.0, *COST, "{}", "[1.0, []]"),
        ("[1, 1, 1, 1]", 1.0, *COST, "{}", "1.0"),
        ("[1, 1, 1, 1]", 1.0, *COST, "[]", "[]"),
        ("[1, 1, 1, 1]", 1.0, *COST, '{"blocks": NaN}', "[]"),
    ],
)
def test_a_good_checksum_does_not_make_a_candidate(tmp_path, row):
    space, path = toy_space(4), tmp_path / "e.sqlite"
    EvaluationStore(path, space).close()

    def sealed(content):
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    checksum = sealed([sealed(["owner", 5, space.fingerprint(), ""]), 0, *row])
    with sqlite3.connect(path) as other:
        other.execute("INSERT INTO evaluations VALUES (0, ?, ?, ?, ?, ?, ?, ?)", (*row, checksum))
    other.close()
    with pytest.raises(RunError, match="holds no candidate of this space at evaluation 0"):
        EvaluationStore(path, space)


def test_the_owner_is_sealed_too(tmp_path):
    space, path = toy_space(4), tmp_path / "e.sqlite"
    filled(path, space)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE owner SET settings = 'weights 2'")
    other.close()
    with pytest.raises(RunError, match="changed from outside at evaluation 0"):
        EvaluationStore(path, space, "weights 2")


def test_a_store_is_made_at_once_or_not_at_all(tmp_path, monkeypatch):
    space, path = toy_space(4), tmp_path / "e.sqlite"
    monkeypatch.setattr("bcnet.searchers.store.TABLES", (TABLES[0], "CREATE TABLE broken"))
    with pytest.raises(RunError, match="cannot be used"):
        EvaluationStore(path, space)
    monkeypatch.undo()
    EvaluationStore(path, space).close()
