"""The tool that changes the code: it finds what can be changed, changes one thing, and sees whether tests notice."""

import ast

import pytest

from tests.robustness import mutants
from tests.robustness.mutants import LineMap, Mutant, places, sample, verdict

CODE = """from __future__ import annotations


def larger(a: int | None, b: int) -> int:
    return a + 1 if a > b else b


def unseen(a, *, b):
    return a * 2
"""
TESTS = """from toy.room.toy import larger


def test_larger():
    assert larger(3, 2) == 4
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / "src/toy/room").mkdir(parents=True)
    (tmp_path / "src/toy/room/toy.py").write_text(CODE)
    (tmp_path / "tests" / "room").mkdir(parents=True)
    (tmp_path / "tests" / "room" / "test_toy.py").write_text(TESTS)
    return tmp_path


def test_annotations_and_stars_of_signatures_are_no_places(tree):
    found = places([tree / "src/toy/room/toy.py"])
    assert {place.line for place in found} == {5, 9}
    for place in found:
        for operator, occurrence in place.choices:
            changed = Mutant(place.file, place.line, operator, occurrence).applied(CODE)
            lines = enumerate(zip(CODE.split("\n"), changed.split("\n"), strict=True), 1)
            differing = [number for number, (before, after) in lines if before != after]
            assert differing == [place.line]
            ast.parse(changed)


def test_a_longer_sample_begins_with_the_shorter_one(tree):
    found = places([tree / "src/toy/room/toy.py"])
    assert sample(found, 4, 1) == sample(found, 5, 1)[:4]
    assert sample(found, 5, 1) != sample(found, 5, 2)
    assert len({(m.line, m.operator, m.occurrence) for m in sample(found, len(found), 1)}) == len(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "operator", "outcome"),
    [(5, "core/ReplaceBinaryOperator_Add_Sub", "failed"), (9, "core/NumberReplacer", "survived")],
)
def test_the_verdict_is_that_of_the_tests_and_the_tree_is_left_as_it_was(tree, line, operator, outcome):
    file, test = "src/toy/room/toy.py", "tests/room/test_toy.py::test_larger"
    known = LineMap({(file, number): frozenset({test}) for number in (5, 9)}, {test: 1.0})
    choices = [choice for place in places([tree / file]) if place.line == line for choice in place.choices]
    occurrence = dict(choices)[operator]
    row = verdict(tree, Mutant(file, line, operator, occurrence), known, 60.0)
    assert row["outcome"] == outcome
    assert row["before"] != row["after"]
    assert (tree / file).read_text() == CODE


def test_the_rooms_own_tests_come_first_and_the_rest_as_far_as_there_is_time():
    seconds = {
        "tests/space/test_a.py::long": 50.0,
        "tests/cli/test_b.py::x": 1.0,
        "tests/run/test_c.py::x": 80.0,
    }
    known = LineMap({("src/bcnet/space/x.py", 1): frozenset(seconds)}, seconds)
    mutant = Mutant("src/bcnet/space/x.py", 1, "core/AddNot", 0)
    assert known.tests_of(mutant, 60.0) == ["tests/space/test_a.py::long", "tests/cli/test_b.py::x"]
    assert known.tests_of(mutant, 1000.0) == list(seconds)
    at_import = Mutant("src/bcnet/space/x.py", 7, "core/AddNot", 0)
    assert known.tests_of(at_import, 1000.0) == list(seconds)
    with_all = LineMap(known.by_line, seconds | {"tests/test_values.py::x": 1.0})
    assert with_all.tests_of(at_import, 1000.0) == [
        "tests/space/test_a.py::long",
        "tests/cli/test_b.py::x",
        "tests/test_values.py::x",
        "tests/run/test_c.py::x",
    ]
    assert "tests/test_values.py::x" not in with_all.tests_of(mutant, 1000.0)
    elsewhere = Mutant("src/bcnet/space/y.py", 1, "core/AddNot", 0)
    assert known.tests_of(elsewhere, 1000.0) == []


def test_a_mutant_that_ends_the_tests_by_a_signal_is_killed(tmp_path):
    (tmp_path / "test_it.py").write_text("import os\n\n\ndef test_it():\n    os.kill(os.getpid(), 9)\n")
    code = mutants.pytest_in(tmp_path, "test_it.py", seconds=60.0)
    assert code == -9
    assert [mutants._outcome(value) for value in (code, None, 0, 1, 5)] == [
        *("crashed", "hangs", "survived", "failed", "no test"),
    ]
