"""The commands for single stages, on the digits: each says how to go on, and what is shared is never done again."""

import json

import pytest
from typer.testing import CliRunner

from bcnet.cli.app import app
from bcnet.files.documents import read_document

SUBJECT = ["--model", "resnet_digits", "--data", "digits", "--epochs", "1", "--threads", "1"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], terminal_width=120)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "trained"
    outcome = run("train", *SUBJECT, "--num-choices", "4", "--out", folder)
    assert outcome.exit_code == 0, outcome.output
    assert "Trained the supernet of 6 width groups" in outcome.output
    assert f"Go on: bcnet evolve {folder}" in outcome.output
    return folder


@pytest.fixture(scope="module")
def searched(trained):
    folder = trained.parent / "searched"
    options = ["--population", "2", "--generations", "2", "--budget", "0.4", "--seed", "3"]
    outcome = run("evolve", trained, *options, "--out", folder)
    assert outcome.exit_code == 0, outcome.output
    assert f"reused from {trained}: supernet" in outcome.output
    assert "supernet: " not in outcome.output.replace("runs: supernet", "")
    assert f"Go on: bcnet retrain {folder}" in outcome.output
    return folder


def test_a_search_under_another_budget_is_trained_to_the_end(searched):
    outcome = run("retrain", searched, "--log", "json")
    assert outcome.exit_code == 0, outcome.output
    events = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [e["stage"] for e in events if e["event"] == "start"] == ["evolution", "original", "Uniform", "searched"]
    result = read_document(searched / "result.json")
    assert result["networks"]["searched"]["macs_ratio"] <= 0.4
    assert events[-1]["result"]["widths"] == result["widths"]
    assert "finished since" in run("status", searched).output


def test_another_budget_in_place_is_refused_with_the_way_on(trained):
    outcome = run("evolve", trained, "--budget", "0.3")
    assert outcome.exit_code == 2
    assert "is one of limits.macs 0.5 and stays so; 0.3 makes another run" in outcome.stderr
    assert "--out" in outcome.stderr


def test_widths_are_trained_by_one_command(tmp_path):
    outcome = run("retrain", *SUBJECT, "--widths", "8,12,12,16,16,24", "--out", tmp_path / "given")
    assert outcome.exit_code == 0, outcome.output
    assert "The widths were given." in outcome.output
    assert list(read_document(tmp_path / "given" / "result.json")["widths"].values()) == [8, 12, 12, 16, 16, 24]
    profiled = run("profile", "resnet_digits", "--widths", tmp_path / "given")
    assert profiled.exit_code == 0
    assert "chosen widths" in profiled.output


@pytest.mark.slow
def test_published_widths_are_profiled_by_name():
    outcome = run("profile", "vgg19", "--widths", "published:0.5x")
    assert outcome.exit_code == 0
    assert "197,406,044" in outcome.output  # the paper: 197M
    refused = run("profile", "resnet20", "--image-size", "8", "--widths", "published:0.5x")
    assert refused.exit_code == 2
    assert "published widths are there for mobilenetv2, vgg19" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evolve", "{tmp}"], "is no run directory"),
        (["retrain"], "needs --model, --data, --widths and --out; missing: --model"),
        (["retrain", *SUBJECT, "--widths", "8,8", "--out", "{tmp}/new"], "one entry per group, 6 here; got 2"),
        (["retrain", *SUBJECT, "--widths", "gone.json", "--out", "{tmp}/new"], "gone.json cannot be read"),
        (["train", *SUBJECT, "--budget", "half", "--out", "{tmp}/new"], "a limit on macs is a ratio"),
        (["train", *SUBJECT, "--set", "augmentation.padding=x", "--out", "{tmp}/new"], "'augmentation"),
        (["search", *SUBJECT, "--budget", "0.5", "--log", "loud", "--out", "{tmp}/new"], "--log is one of auto"),
        (["recipes", "vgg"], "a recipe is a .yaml file or one of"),
    ],
)
def test_mistakes_end_with_one_message(tmp_path, arguments, message):
    outcome = run(*(text.replace("{tmp}", str(tmp_path)) for text in arguments))
    assert outcome.exit_code == 2, outcome.output
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert not (tmp_path / "new").exists()


def test_recipes_stand_beside_their_results(tmp_path):
    outcome = run("recipes", "--results", tmp_path)
    assert outcome.exit_code == 0
    for text in ("vgg19-cifar10", "94.36", "77.36", "No finished runs are recorded"):
        assert text in outcome.output


@pytest.mark.parametrize("command", ["train", "evolve", "retrain", "recipes"])
def test_help_reads_like_a_manual_page(command):
    outcome = run(command, "--help")
    assert outcome.exit_code == 0
    assert "Example" in outcome.output
    assert f"bcnet {command}" in outcome.output


def test_a_baseline_by_one_command_and_from_another_run(trained, tmp_path):
    options = [*SUBJECT, "--num-choices", "4", "--budget", "0.5", "--log", "lines"]
    first = run("baseline", "uniform", *options, "--out", tmp_path / "uniform")
    assert first.exit_code == 0, first.output
    assert "All layers were narrowed alike." in first.output
    networks = ["--random-networks", "2", "--random-epochs", "1"]
    sharing = ["--take-from", tmp_path / "uniform", "--take-from", trained, "--out", tmp_path / "random"]
    second = run("baseline", "random", *options, *networks, *sharing)
    assert second.exit_code == 0, second.output
    assert f"reused from {tmp_path / 'uniform'}: original, Uniform" in second.output
    assert "finished since" in run("status", tmp_path / "random").output
    wrong = run("baseline", "Uniform", *options, "--out", tmp_path / "new")
    assert (wrong.exit_code, (tmp_path / "new").exists()) == (2, False)
    assert "magnitude, taylor, fastnas; got 'Uniform'" in wrong.stderr
