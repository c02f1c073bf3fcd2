"""The evaluation store: replay, and refusal of what it cannot trust."""

import sqlite3

import pytest

from bcnet.errors import RunError
from bcnet.searchers import EvaluationStore, Random, search_widths
from bcnet.space import Budget
from bcnet.testing import toy_space

HALF = Budget(macs=0.5)


def filled(path, space):
    with EvaluationStore(path, space, "weights 1") as store:
        return search_widths(space, lambda w: sum(w) / 3, HALF, searcher=Random(evaluations=12), store=store)


def test_what_was_written_is_read_back(tmp_path):
    space = toy_space(4)
    result = filled(tmp_path / "e.sqlite", space)
    with EvaluationStore(tmp_path / "e.sqlite", space, "weights 1") as store:
        assert store.evaluations == result.evaluations
        assert store.scores() == {c.widths: c.score for c in result.evaluations}


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
