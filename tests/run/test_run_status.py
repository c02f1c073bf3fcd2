"""The status of runs in every state, without a run: the files are written as a run writes them."""

import fcntl
import json
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from bcnet.cli.app import app
from bcnet.errors import RunError
from bcnet.files.documents import write_document
from bcnet.files.evaluation_tables import TABLES
from bcnet.progress.record import Record, StageRecord, read_record, write_record
from bcnet.run.status import read_status
from tests.robustness.fuzz_states import SUBJECT, result_document

SETTINGS = {"model": "resnet20", "data": "cifar10", "limits": {"macs": 0.5}, "seed": 3}
RECORD = Record(
    "running",
    pid=4711,
    host="here",
    started=1000.0,
    updated=2000.0,
    stages=(
        StageRecord("supernet", 100, "steps", 40, "loss 1.2", "supernet.safetensors"),
        StageRecord("prior", 1, "problem"),
    ),
    stage="supernet",
    stage_left=60.0,
    run_left=300.0,
)
INSERT = "INSERT INTO evaluations (widths, score, macs, params, checksum) VALUES"
ROWS = [("[8, 8]", 60.0, 400, 10), ("[9, 9]", 70.0, 600, 10), ("[4, 9]", 65.0, 500, 9), ("[5, 9]", 65.0, 450, 9)]


def store(path, rows=ROWS):
    with sqlite3.connect(path) as connection:
        for table in TABLES:
            connection.execute(table)
        connection.executemany(f"{INSERT} (?, ?, ?, ?, '')", rows)
    connection.close()


@pytest.fixture
def run(tmp_path):
    write_document(tmp_path / "settings.json", SETTINGS)
    write_document(tmp_path / "space.json", SUBJECT.model_dump(mode="json"))
    write_record(tmp_path, RECORD)
    return tmp_path


@pytest.fixture
def held(run):
    with open(run / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4712\n")
        lock.flush()
        yield run


def states(status):
    return {stage.record.name: stage.state for stage in status.stages}


def test_a_running_run_says_where_it_is_and_when_it_ends(held):
    status = read_status(held)
    assert (status.state, status.pid, status.since) == ("running", 4712, 1000.0)
    assert states(status)["supernet"] == "at hand"
    assert (status.stage_left, status.ends) == (60.0, 2300.0)
    assert status.evaluations is None
    assert status.problems == ()


@pytest.mark.parametrize(("ended", "state"), [("finished", "in part"), ("stopped", "stopped"), ("running", "stopped")])
def test_a_part_that_came_to_its_end_is_not_stopped(run, ended, state):
    write_record(run, replace(RECORD, state=ended, stage=None))
    assert read_status(run).state == state
    told = CliRunner().invoke(app, ["status", str(run)]).output
    assert f"{run}: {state} since" in told.replace("\n", "")
    assert ("the run can be continued" in told) == (state == "in part")


def test_an_end_that_nothing_is_known_of_stays_unknown(held):
    write_record(held, replace(RECORD, run_left=None))
    assert read_status(held).ends is None


def test_a_killed_run_is_stopped_since_it_was_last_heard_of(run):
    (run / "lock").write_text("4712\n")  # a killed process leaves its file, but no lock
    (run / "supernet.safetensors").touch()
    status = read_status(run)
    assert (status.state, status.pid, status.since, status.ends) == ("stopped", None, 2000.0, None)
    assert states(status) | {"supernet": "finished", "prior": "ahead"} == states(status)


def test_stages_are_told_by_the_words_of_the_terminal_and_stored_by_name(held):
    trials = StageRecord("trials", 20, "trainings", 3)
    write_record(held, replace(RECORD, stages=(trials,), stage="trials", updated=time.time()))
    told = CliRunner().invoke(app, ["status", str(held)]).output
    assert "short trainings 3 of 20 trainings" in told.replace("\n", " ")
    assert states(read_status(held)) == {"trials": "at hand"}


def test_what_is_finished_comes_first_as_it_ran(held):
    planned = (StageRecord("trials", 20, "trainings", 3), StageRecord("original", 5, "steps", 5))
    write_record(held, replace(RECORD, stages=planned, stage="trials"))
    assert list(states(read_status(held)).items()) == [("original", "finished"), ("trials", "at hand")]


def test_a_failed_run_says_why(run):
    write_record(run, replace(RECORD, state="failed", message="the loss is no number"))
    status = read_status(run)
    assert (status.state, status.message) == ("failed", "the loss is no number")


def test_a_finished_run_shows_its_networks(run):
    figures = {"macs": 480, "macs_ratio": 0.48, "params": 50, "test": {"top1": 91.5, "top5": 99.0}}
    write_document(run / "result.json", result_document(**figures))
    status = read_status(run)
    assert status.state == "finished"
    assert status.result["searched"] == {**figures, "headline": "91.50 % test top-1"}
    assert list(status.result) == ["original", "uniform", "searched"]


def test_the_best_is_within_the_budget_and_of_equals_the_cheapest(run):
    store(run / "evaluations.sqlite")
    status = read_status(run)
    assert status.evaluations == 4
    assert (status.best.widths, status.best.score, status.best_ratio) == ((5, 9), 65.0, 0.45)


def test_no_candidate_within_the_budget_is_no_best(run):
    store(run / "evaluations.sqlite", ROWS[1:2])
    assert (read_status(run).evaluations, read_status(run).best) == (1, None)


def test_a_writer_is_not_disturbed(run):
    store(run / "evaluations.sqlite")
    with sqlite3.connect(run / "evaluations.sqlite", timeout=0) as writer:
        writer.execute(f"{INSERT} ('[1, 1]', 99.0, 1, 1, '')")
        assert read_status(run).evaluations == 4  # what is not committed is not there
    writer.close()
    assert read_status(run).evaluations == 5


KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA cache_size=1")
connection.execute("BEGIN")
connection.executemany("INSERT INTO evaluations (widths, score, macs, params, checksum) VALUES (?, 1.0, 1, 1, '')",
                       [("[%s]" % ("1, " * 500 + str(last)),) for last in range(100)])
os._exit(1)
"""


def test_a_journal_left_by_a_kill_is_read_around_and_left_alone(run):
    store(run / "evaluations.sqlite")
    subprocess.run([sys.executable, "-c", KILLED, str(run / "evaluations.sqlite")], check=False)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert "evaluations.sqlite-journal" in before
    assert read_status(run).evaluations == 4
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


DEEP = b'{"format": 1, "message": ' + b"[" * 400 + b"]" * 400 + b"}"


@pytest.mark.parametrize("name", ["settings.json", "space.json"])
def test_a_document_nested_deeper_than_any_of_ours_is_damaged(run, name):
    store(run / "evaluations.sqlite")
    model = json.loads("[" * 400 + "]" * 400)  # parsed in no time, and too deep for what copies or prints it
    write_document(run / name, {"model": model})
    assert any(name in problem for problem in read_status(run).problems)


@pytest.mark.parametrize("name", ["settings.json", "space.json", "result.json", "evaluations.sqlite"])
def test_what_is_damaged_is_a_problem_and_the_rest_is_told(run, name):
    store(run / "evaluations.sqlite")
    (run / name).write_bytes(b"no such thing" * 100)
    status = read_status(run)
    assert status.problems
    assert all(name in problem for problem in status.problems)
    assert status.state == ("damaged" if name in ("settings.json", "result.json") else "stopped")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 2}', b'{"format": 1}', b"\xff", DEEP])
def test_a_damaged_record_is_none(run, content):
    (run / "progress.json").write_bytes(content)
    assert read_record(run) is None
    assert read_status(run).state == "stopped"


def test_a_record_survives_its_file(tmp_path):
    write_record(tmp_path, RECORD)
    assert read_record(tmp_path) == RECORD


def test_an_empty_directory_has_nothing_started(tmp_path):
    assert read_status(tmp_path).state == "empty"


def test_other_places_are_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunError, match="is not a run directory"):
        read_status(tmp_path)
    with pytest.raises(RunError, match="is a file"):
        read_status(tmp_path / "thesis.tex")
    with pytest.raises(RunError, match="is not there"):
        read_status(tmp_path / "gone")


def test_the_command_needs_no_torch_and_speaks_to_people_and_machines(held):
    store(held / "evaluations.sqlite")
    write_record(held, replace(RECORD, updated=time.time()))
    script = (
        "import sys\nfrom bcnet.cli import main\ntry:\n    main()\nfinally:\n"
        "    heavy = [n for n in ('torch', 'numpy', 'scipy', 'pymoo') if n in sys.modules]\n"
        "    print(heavy, file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, "status", str(held)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stderr.strip() == "[]"
    for text in ("running (process 4712 on here)", "40 of 100 steps (40 %), 0:01:00 left, loss 1.2", "in about 0:0"):
        assert text in shown.stdout
    assert "4 candidates, the best 65.00 % at 450 MACs (0.450 of the original), 9 parameters: 5,9" in shown.stdout
    document = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert document["state"] == "running"
    assert document["stages"][0] == {
        "name": "supernet",
        "total": 100,
        "unit": "steps",
        "done": 40,
        "detail": "loss 1.2",
        "file": "supernet.safetensors",
        "state": "at hand",
    }
    assert document["best"]["widths"] == [5, 9]
