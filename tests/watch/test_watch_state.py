"""What the page is told of a run: all that is there, once, in answers of bounded size; and nothing is written."""

import hashlib
import json
import os
import shutil
import sqlite3
from dataclasses import replace

import pytest
from charts import valid
from tiny_job import Recorder, StoppedError, tiny_search

from bcnet import Run, read_status
from bcnet.progress.loss_curve import LossCurve
from bcnet.progress.record import CurveRecord, read_record, write_record
from bcnet.watch.state import MOST_AT_ONCE, machine_state, run_state


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return tiny_search(tmp_path_factory.mktemp("watched") / "whole").run_dir


@pytest.fixture
def stopped(tmp_path):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path / "part", reporter=Recorder(stop=("evolution", 5)))
    return tmp_path / "part"


def files(folder):
    return {
        str(file.relative_to(folder)): (file.stat().st_mtime_ns, hashlib.sha256(file.read_bytes()).hexdigest())
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_candidates_are_those_of_the_run_and_told_once(finished):
    told = run_state(finished, 0)
    evaluations = Run.open(finished).evaluations
    assert [tuple(row["widths"]) for row in told["candidates"]] == [c.widths for c in evaluations]
    assert [row["score"] for row in told["candidates"]] == [c.score for c in evaluations]
    budget = Run.open(finished).settings.budget.resolve(Run.open(finished).space.reference)
    assert [row["within"] for row in told["candidates"]] == [budget.admits(c.cost) for c in evaluations]
    assert valid(told["charts"]).keys() == {"supernet", "networks", "candidates"}
    again = run_state(finished, len(evaluations))
    assert (again["first"], again["candidates"], again["more"]) == (len(evaluations), [], False)
    assert "charts" not in again


def test_some_are_told_after_those_that_are_known(finished):
    whole = run_state(finished, 0)["candidates"]
    assert run_state(finished, 3)["candidates"] == whole[3:]
    assert run_state(finished, 3)["first"] == 3


def test_a_run_that_was_begun_anew_is_told_from_the_start(stopped):
    count = read_status(stopped).evaluations
    told = run_state(stopped, count + 1)
    assert told["first"] == 0
    assert len(told["candidates"]) == count
    assert "charts" in told


def test_losses_cover_the_epochs_of_every_training(finished):
    settings = Run.open(finished).settings
    losses = run_state(finished, 0)["losses"]
    assert {row["stage"] for row in losses["networks"]} == {"original", "Uniform", "searched"}
    assert losses["supernet"][-1]["epoch"] == pytest.approx(settings.supernet.epochs)
    for stage in ("original", "Uniform", "searched"):
        assert [r["epoch"] for r in losses["networks"] if r["stage"] == stage][-1] == pytest.approx(
            settings.final.epochs
        )
    assert all(row["low"] <= row["loss"] <= row["high"] for rows in losses.values() for row in rows)


def test_the_loss_is_the_one_that_was_trained_by(finished):
    records = Run.open(finished).records
    rows = run_state(finished, 0)["losses"]["supernet"]
    curve = read_record(finished).curves["supernet"]
    counts = [b[1] for b in curve.bins]
    mean = sum(row["loss"] * n for row, n in zip(rows, counts, strict=True)) / sum(counts)
    assert mean == pytest.approx(records.losses.mean(), rel=1e-4)


def test_nothing_is_written(stopped, finished):
    for folder in (stopped, finished):
        before, names = files(folder), sorted(os.listdir(folder))
        for known in (0, 2, 99):
            run_state(folder, known)
        assert files(folder) == before
        assert sorted(os.listdir(folder)) == names


def test_a_long_run_is_told_in_answers_of_bounded_size(finished, tmp_path):
    folder = tmp_path / "long"
    shutil.copytree(finished, folder)
    curve = LossCurve()
    for step in range(1, 50_001):
        curve.add(step, 1.0)
    record = read_record(folder)
    long = CurveRecord(curve.width, tuple(map(tuple, curve.bins)))
    write_record(folder, replace(record, curves=dict.fromkeys(("supernet", "original", "Uniform", "searched"), long)))
    with sqlite3.connect(folder / "evaluations.sqlite") as connection:
        row = connection.execute("SELECT score, macs, params, others, batches, checksum FROM evaluations").fetchone()
        connection.executemany(
            "INSERT INTO evaluations (widths, score, macs, params, others, batches, checksum) VALUES (?,?,?,?,?,?,?)",
            [(f"[{i}, {i}]", *row) for i in range(100, 100 + 3 * MOST_AT_ONCE)],
        )
    connection.close()
    known, answers = 0, 0
    while True:
        told = run_state(folder, known)
        assert len(told["candidates"]) <= MOST_AT_ONCE
        assert all(len(rows) <= 3 * 200 for rows in told["losses"].values())
        assert len(json.dumps(told, allow_nan=False)) < 1_000_000
        known, answers = known + len(told["candidates"]), answers + 1
        if not told["more"]:
            break
    assert known == read_status(folder).evaluations
    assert answers == 4
    assert len(json.dumps(run_state(folder, known))) < 120_000  # what is asked for once a second


def test_a_folder_that_is_no_run_is_a_problem(tmp_path):
    (tmp_path / "other.txt").write_text("")
    told = run_state(tmp_path, 0)
    assert told["status"]["state"] == "damaged"
    assert "no run directory" in told["status"]["problems"][0]


def test_an_empty_folder_waits(tmp_path):
    assert run_state(tmp_path, 0)["status"]["state"] == "empty"


@pytest.mark.parametrize("name", ["settings.json", "space.json", "evaluations.sqlite", "progress.json"])
def test_damage_is_told_and_the_rest_shown(finished, tmp_path, name):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    (folder / name).write_bytes(b"{" * 50)
    told = run_state(folder, 0)
    json.dumps(told, allow_nan=False)
    if name == "progress.json":
        assert told["candidates"]
        assert told["losses"] == {"supernet": [], "networks": []}
    else:
        assert any(name in problem for problem in told["status"]["problems"])


def test_the_machine_is_told_of(tmp_path):
    told = machine_state(tmp_path)
    assert told["cores"] >= 1
    assert 0 <= told["cpu"] <= 100
