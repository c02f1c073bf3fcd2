"""Rows of a study survive kills: none is lost, none is half there, none is made twice."""

import subprocess
import sys

import pytest

from studies.shared import provenance
from studies.shared.provenance import ROOT, append_row, finished, rows

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


def test_a_row_says_by_which_instructions_it_was_computed(monkeypatch):
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX2")
    assert provenance.provenance()["cpu"].endswith(" (AVX2)")


WRITER = """
import sys
from pathlib import Path
from studies.shared.provenance import append_row
print(flush=True)
input()
for value in range(100):
    append_row(Path(sys.argv[1]), {"name": sys.argv[2], "value": value})
"""


@pytest.mark.slow
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


def git(folder, *words):
    command = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "empty")):
        assert git(tmp_path, *words).returncode == 0
    (tmp_path / "code.py").write_text("1")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x.csv").write_text("a")
    for words in (("add", "."), ("commit", "-q", "-m", "files")):
        assert git(tmp_path, *words).returncode == 0
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    return tmp_path


def test_a_row_names_the_commit_and_says_where_files_were_changed(repository):
    commit = provenance._commit.__wrapped__
    head = git(repository, "rev-parse", "--short", "HEAD").stdout.strip()
    assert commit() == head
    (repository / "results" / "x.csv").write_text("b")
    (repository / "new.py").write_text("not of the checkout")
    assert commit() == head  # rows are what studies write
    (repository / "code.py").write_text("2")
    assert commit() == f"{head}+changes"


def test_without_git_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance._commit.__wrapped__() == "unknown"


TABLES = sorted([*(ROOT / "results").rglob("*.csv"), *(ROOT / "benchmarks" / "results").glob("*.csv")])


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_row_was_computed_by_a_commit_of_this_history(table):
    if git(ROOT, "rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs the whole history: this is a shallow clone, or none")
    commits = {row["commit"].removesuffix("+changes") for row in rows(table) if "commit" in row}
    missing = {commit for commit in commits if git(ROOT, "merge-base", "--is-ancestor", commit, "HEAD").returncode}
    assert not missing
