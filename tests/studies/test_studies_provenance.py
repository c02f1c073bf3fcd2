"""Rows of a study survive kills: none is lost, none is half there, none is made twice."""

import subprocess
import sys

import pytest

from studies.shared import provenance
from studies.shared.provenance import append_row, finished, rows

ROW = {"name": "a, b", "value": 1}


def test_rows_are_read_back(tmp_path):
    path = tmp_path / "results" / "x.csv"
    assert rows(path) == []
    assert not finished(path, {"name": "a, b"})
    append_row(path, ROW)
    append_row(path, {"value": 2, "name": 'c"\n'})
    assert rows(path) == [{"name": "a, b", "value": "1"}, {"name": 'c"\n', "value": "2"}]
    assert finished(path, {"name": "a, b", "value": "1"})
    with pytest.raises(ValueError, match="not in fieldnames"):
        append_row(path, {**ROW, "more": 3})


@pytest.mark.parametrize("length", range(28))
def test_a_row_half_written_is_written_again(tmp_path, length):
    path, whole = tmp_path / "x.csv", tmp_path / "whole.csv"
    for value in (1, 2):
        append_row(whole, {**ROW, "value": value})
    content = whole.read_bytes()
    path.write_bytes(content[:length])
    for value in (1, 2):
        if not finished(path, {"value": str(value)}):
            append_row(path, {**ROW, "value": value})
    assert path.read_bytes() == content


WRITER = """
import sys
from pathlib import Path
from studies.shared.provenance import append_row
print(flush=True)
input()
for value in range(100):
    append_row(Path(sys.argv[1]), {"name": sys.argv[2], "value": value})
"""


def test_processes_that_share_a_file_lose_no_row(tmp_path):
    path = tmp_path / "x.csv"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": provenance.ROOT}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], **pipes) for name in "ab"]
    for writer in writers:
        writer.stdout.readline()
    for writer in writers:  # both start at once
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    found = sorted((row["name"], int(row["value"])) for row in rows(path))
    assert found == [(name, value) for name in "ab" for value in range(100)]
