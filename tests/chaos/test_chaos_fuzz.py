"""A few hundred of the changed files of `studies/fuzz.py`."""

import fuzz
import pytest
from fuzz_files import Table
from fuzz_targets import TARGETS

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
