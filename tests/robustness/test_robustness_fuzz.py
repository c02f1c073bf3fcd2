"""A few hundred of the changed files of `tests/robustness/fuzz.py`."""

import subprocess
import sys
from collections import Counter

import pytest

from tests.robustness import fuzz
from tests.robustness.fuzz_files import Table
from tests.robustness.fuzz_targets import TARGETS

COUNTS = dict.fromkeys(TARGETS, 20) | {Table: 4}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_changed_file_is_read_or_refused(target, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "file").mkdir()
    made = target(tmp_path / "file")
    verdicts = [fuzz.verdict(made, 1, number) for number in range(COUNTS[target])]
    assert [found for found in verdicts if found not in fuzz.GOOD] == []
    assert "refused" in verdicts or not target.refuses


WORKERS = {
    "a reader that never ends": (
        "import signal; print('ready', flush=True)\nsignal.setitimer(signal.ITIMER_PROF, 0.1)\nwhile True: pass",
        "hang",
    ),
    "a reader that dies": ("import os; print('ready', flush=True); os._exit(9)", "death: 9"),
}


@pytest.mark.parametrize(("code", "found"), WORKERS.values(), ids=WORKERS)
def test_a_reader_that_never_ends_or_dies_is_counted(code, found):
    verdicts: Counter[str] = Counter()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert fuzz._follow(process, 3, verdicts) == 4
    assert verdicts == {found: 1}
