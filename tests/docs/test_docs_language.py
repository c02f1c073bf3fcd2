"""The check of docstrings in `make lint` finds what it is for."""

import importlib.util

import pages

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
