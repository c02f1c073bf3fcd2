"""The check of docstrings and names in `make lint` finds what it is for."""

import importlib.util

import pages
import pytest

SPEC = importlib.util.spec_from_file_location("language", pages.ROOT / ".ci" / "language.py")
LANGUAGE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(LANGUAGE)


def test_docstrings_that_begin_with_a_relative_word_are_found(tmp_path, capsys):
    good = '"""Costs of a width."""\n\n\ndef f():\n    """Return what a width costs."""\n'
    (tmp_path / "good.py").write_text(good)
    assert LANGUAGE.main([str(tmp_path)]) == 0
    for text in (
        "What a width costs.",
        "Whether it fits.",
        "The same space.",
        "As `trace`, for loops.",
        "Of a group.",
        "How it fits.",
    ):
        (tmp_path / "bad.py").write_text(good.replace("Return what a width costs.", text))
        assert LANGUAGE.main([str(tmp_path)]) == 1
        assert "bad.py:5: the docstring of f begins with" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["taken", "_checked", "told", "measuring", "_found", "needed", "_seeded"])
def test_functions_named_by_a_bare_participle_are_found(name, tmp_path, capsys):
    (tmp_path / "bad.py").write_text(f"class A:\n    def {name}(self):\n        pass\n")
    assert LANGUAGE.main([str(tmp_path)]) == 1
    assert f"bad.py:2: {name} is a bare participle" in capsys.readouterr().out


NAMES = ["take", "checked_errors", "heading", "seed", "scaled", "training_bytes", "is_found", "read"]


@pytest.mark.parametrize("name", NAMES)
def test_verbs_values_and_predicates_are_names(name, tmp_path):
    (tmp_path / "good.py").write_text(f"def {name}():\n    pass\n")
    assert LANGUAGE.main([str(tmp_path)]) == 0
