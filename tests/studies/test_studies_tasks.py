"""The tasks' study: every task from data to a row in a short form, and data of which no part sees another's."""

import csv

import pytest
import torch
from typer.testing import CliRunner

import bcnet
from studies.tasks import pictures
from studies.tasks.__main__ import JOBS, main


@pytest.fixture
def app():
    import typer

    made = typer.Typer()
    made.command()(main)
    return made


@pytest.mark.studies
@pytest.mark.parametrize("name", JOBS)
def test_every_task_ends_with_rows_that_are_not_computed_twice(name, app, tmp_path):
    if name == "listen":
        pytest.importorskip("sktime", reason="the recordings are in sktime (extra studies)")
    words = [name, "--quick", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "tasks.csv")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader((tmp_path / "tasks.csv").read_text().splitlines()))
    assert [row["network"] for row in rows] == ["original", "uniform", "searched", "balanced"]
    assert {row["metric"] for row in rows} == {JOBS[name].task.headline.column}
    assert all(float(row["macs_ratio"]) <= 0.5 for row in rows[1:])
    assert "<h1" in (tmp_path / "runs" / f"{name}-0-0.5" / "report.html").read_text()
    pytest.importorskip("onnxruntime")
    assert bcnet.export_run(tmp_path / "runs" / f"{name}-0-0.5", JOBS[name].network).difference < 1e-4
    again = CliRunner().invoke(app, words, catch_exceptions=False)
    assert again.output == ""


def test_a_box_is_around_what_is_inked_and_digits_do_not_cover_each_other():
    images, targets = pictures.boxed("training", 30)
    plain = pictures.patches("training", 30)
    there = targets["labels"] >= 0
    assert there[:, 0].all()
    assert there.sum(1).float().mean() > 1.5
    for image, before, boxes, some in zip(images, plain, targets["boxes"], there, strict=True):
        inked = (image == 1).all(0) & (before != 1).any(0)
        outside = inked.clone()
        for x1, y1, x2, y2 in boxes[some].long().tolist():
            assert inked[y1:y2, x1:x2].any(1).float().mean() > 0.6
            outside[y1:y2, x1:x2] = False
        assert not outside.any()


def test_sums_are_of_the_digits_that_are_shown():
    (left, right), sums = pictures.pairs("test", 200)
    assert left.shape == right.shape == (200, 1, 8, 8)
    assert 0 <= int(sums.min()) <= int(sums.max()) <= 18
    assert len(sums.unique()) > 12
    digits = torch.from_numpy(pictures.load_digits().images)[:, None].float() / 16
    first, last = pictures._ROWS["training"]
    trained = {image.numpy().tobytes() for image in digits[first:last]}
    assert not trained & {image.numpy().tobytes() for image in (*left, *right)}


def test_vowels_are_those_of_nine_men_and_no_recording_is_in_two_parts():
    pytest.importorskip("sktime", reason="the recordings are in sktime (extra studies)")
    parts = {part: pictures.vowels(part, 1000) for part in pictures.PARTS}
    assert {part: len(labels) for part, (_, labels) in parts.items()} == {
        "training": 180,
        "validation": 90,
        "test": 370,
    }
    assert all(sorted(labels.unique().tolist()) == [*range(9)] for _, labels in parts.values())
    sounds = [{sound.numpy().tobytes() for sound in x} for x, _ in parts.values()]
    assert sum(map(len, sounds)) == len(set.union(*sounds)) == 640
