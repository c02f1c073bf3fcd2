"""The study on a microcontroller, which `make test-all` runs: from a search to the file in tflite-micro."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from studies.keywords import __main__ as keywords
from studies.shared.provenance import ROOT


@pytest.mark.slow
@pytest.mark.usefixtures("litert")
@pytest.mark.skipif(not keywords.DATA.is_dir(), reason="needs the spoken digits in ../shared/data")
def test_keywords_on_a_microcontroller(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "studies.keywords", "--quick", "--out", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT)
    rows = list(csv.DictReader((tmp_path / "quick_keywords.csv").read_text().splitlines()))
    for row in rows:
        assert row["arena"] == row["arena_told"]
        assert int(row["file_bytes"]) <= int(row["flash"])
        assert abs(float(row["top1_tflite_micro"]) - float(row["top1_pytorch"])) < 10
    original, narrow = rows
    assert int(narrow["arena"]) <= 6 * 1024 < int(original["arena"])
