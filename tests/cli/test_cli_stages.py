"""A search in parts on the command line, on the digits: each part says how to go on, and nothing is done twice."""

import json

import pytest
from typer.testing import CliRunner

from bcnet.cli.app import app
from bcnet.files.documents import read_document

SUBJECT = ["--model", "resnet_digits", "--data", "digits", "--epochs", "1", "--threads", "1"]
SMALL = [*SUBJECT, "--num-choices", "4", "--method", "bcnet:population=2,generations=2,parents=1"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], terminal_width=120)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "trained"
    outcome = run("search", *SMALL, "--budget", "0.5", "--until", "prior", "--out", folder)
    assert outcome.exit_code == 0, outcome.output
    assert "prior" in outcome.output
    assert not (folder / "result.json").exists()
    return folder


def test_a_search_under_another_budget_reuses_what_it_shares(trained):
    folder = trained.parent / "searched"
    asked = [*SMALL, "--budget", "0.4", "--reuse", trained, "--log", "json", "--out", folder]
    outcome = run("search", *asked)
    assert outcome.exit_code == 0, outcome.output
    events = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [e["stage"] for e in events if e["event"] == "start"] == [
        "prior",
        "evolution",
        "reliability",
        "original",
        "Uniform",
        "searched",
    ]
    result = read_document(folder / "result.json")
    assert result["networks"]["searched"]["macs_ratio"] <= 0.4
    assert events[-1]["result"]["widths"] == result["widths"]
    assert "finished since" in run("status", folder).output


def test_another_budget_in_place_is_refused_with_the_way_on(trained):
    outcome = run("search", *SMALL, "--budget", "0.3", "--out", trained)
    assert outcome.exit_code == 2
    assert "limits.macs is 0.5 there and 0.3 here" in outcome.stderr
    assert "--out" in outcome.stderr or "run_dir" in outcome.stderr


def test_the_same_command_without_until_goes_to_the_end(trained):
    asked = [*SMALL, "--budget", "0.5", "--log", "json", "--out", trained]
    outcome = run("search", *asked)
    assert outcome.exit_code == 0, outcome.output
    events = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert "supernet" not in [e["stage"] for e in events if e["event"] == "start"]
    assert (trained / "result.json").exists()


@pytest.mark.slow
def test_widths_are_trained_by_one_command(tmp_path):
    outcome = run("search", *SUBJECT, "--method", "given:values=8,12,12,16,16,24", "--out", tmp_path / "given")
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
    assert "published widths exist for mobilenetv2, vgg19" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "half"], "a limit on macs must be a ratio"),
        (["--budget", "0.5", "--set", "augmentation.padding=x"], "'augmentation"),
        (["--budget", "0.5", "--log", "loud"], "--log must be one of auto"),
        ([], "a search needs a budget; got none"),
        (["--budget", "0.5", "--reuse", "{tmp}"], "is not a run directory"),
    ],
)
def test_mistakes_end_with_one_message(tmp_path, arguments, message):
    given = (text.replace("{tmp}", str(tmp_path)) for text in arguments)
    outcome = run("search", *SUBJECT, *given, "--out", tmp_path / "new")
    assert outcome.exit_code == 2, outcome.output
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert not (tmp_path / "new").exists()


def test_recipes_stand_beside_their_results(tmp_path):
    outcome = run("recipes", "--results", tmp_path)
    assert outcome.exit_code == 0
    for text in ("vgg19-cifar10", "94.36", "77.36", "No finished runs are recorded"):
        assert text in outcome.output


def test_help_reads_like_a_manual_page():
    outcome = run("recipes", "--help")
    assert outcome.exit_code == 0
    assert "Example" in outcome.output
    assert "bcnet recipes" in outcome.output


@pytest.mark.slow
def test_methods_by_one_command_and_from_another_run(tmp_path):
    options = [*SUBJECT, "--num-choices", "4", "--budget", "0.5", "--log", "lines"]
    first = run("search", *options, "--method", "uniform", "--out", tmp_path / "uniform")
    assert first.exit_code == 0, first.output
    assert "All groups have the same ratio." in first.output
    method = ["--method", "random:networks=2,epochs=1"]
    second = run("search", *options, *method, "--reuse", tmp_path / "uniform", "--out", tmp_path / "random")
    assert second.exit_code == 0, second.output
    assert f"reused from {tmp_path / 'uniform'}: original, Uniform" in second.output
    assert "finished since" in run("status", tmp_path / "random").output
