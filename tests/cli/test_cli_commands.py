import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from bcnet.cli import parse
from bcnet.cli.app import app
from bcnet.errors import BudgetError
from bcnet.files.documents import read_document

SEARCH = ["search", "--model", "resnet_digits", "--data", "digits", "--budget", "0.5", "--threads", "1"]
SMALL = ["--method", "bcnet:population=2,generations=2,parents=1"]
QUICK = [*SEARCH, *SMALL, "--epochs", "1", "--num-choices", "4"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], terminal_width=120)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "digits"
    outcome = run(*QUICK, "--out", folder)
    assert outcome.exit_code == 0, outcome.output
    return folder, outcome.output


def test_a_search_ends_with_the_table(finished):
    folder, output = finished
    for name in (
        "original",
        "Uniform",
        "searched",
        "test top-1",
        "Trust in the search: ",
        f"Next: bcnet export {folder}",
    ):
        assert name in output
    assert "Milliseconds per batch" in (folder / "report.html").read_text()
    assert "supernet: 8 steps" in output  # plain lines, since this is no terminal
    assert "\x1b[" not in output


def test_report_shows_the_same_again(finished):
    folder, output = finished
    again = run("report", folder)
    assert again.exit_code == 0
    assert "searched" in again.output
    top1 = read_document(folder / "result.json")["networks"]["searched"]["test"]["top1"]
    assert f"{top1:.2f}" in output
    assert f"{top1:.2f}" in again.output


def test_the_same_command_does_nothing_again(finished):
    folder, _ = finished
    outcome = run(*QUICK, "--out", folder)
    assert outcome.exit_code == 0
    assert "supernet:" not in outcome.output


def test_machines_get_the_result_and_the_error_as_lines(finished):
    folder, _ = finished
    lines = run(*QUICK, "--log", "json", "--out", folder).output.splitlines()
    last = json.loads(lines[-1])
    assert (last["event"], last["run"]) == ("result", str(folder))
    assert last["result"]["networks"]["searched"]["test"]["top1"] > 0
    outcome = run(*QUICK, "--seed", "1", "--log", "json", "--out", folder)
    assert outcome.exit_code == 2
    error = json.loads(outcome.stdout.splitlines()[-1])
    assert (error["event"], "another configuration" in error["message"]) == ("error", True)


def test_a_quiet_run_says_nothing(finished):
    outcome = run(*QUICK, "--log", "quiet", "--out", finished[0])
    assert (outcome.exit_code, outcome.output) == (0, "")


def test_status_of_a_finished_run(finished):
    outcome = run("status", finished[0])
    assert outcome.exit_code == 0
    assert "finished since" in outcome.output
    assert "Found so far: 4 candidates, the best" in outcome.output
    assert "Test: original" in outcome.output
    assert run("status", finished[0] / "no such").exit_code == 2


def test_another_configuration_is_refused(finished):
    folder, _ = finished
    outcome = run(*QUICK, "--seed", "1", "--out", folder)
    assert outcome.exit_code == 2
    assert "another configuration: seed is 0 there and 1 here" in outcome.stderr


def test_a_damaged_result_is_not_shown(finished, tmp_path):
    folder, _ = finished
    for name in ("settings.json", "result.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes().replace(b"digits", b"letters"))
    outcome = run("report", tmp_path)
    assert outcome.exit_code == 2
    assert "is damaged" in outcome.stderr


def test_an_unfinished_run_has_a_report_of_what_there_is(finished, tmp_path):
    (tmp_path / "settings.json").write_bytes((finished[0] / "settings.json").read_bytes())
    outcome = run("report", tmp_path)
    assert outcome.exit_code == 0
    assert "The run is not finished; the report shows its state so far" in outcome.output
    assert "has not traced its network yet" in (tmp_path / "report.html").read_text()


def test_several_runs_are_compared(finished, tmp_path):
    folder, _ = finished
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "settings.json").write_bytes((folder / "settings.json").read_bytes())
    outcome = run("report", folder, begun, "--out", tmp_path / "both.html")
    assert outcome.exit_code == 0, outcome.output
    assert "2 runs: resnet_digits on digits" in (tmp_path / "both.html").read_text()
    refused = run("report", folder, "--out", tmp_path / "one.html")
    assert refused.exit_code == 2
    assert "--out is for comparing several runs" in refused.stderr
    assert not (tmp_path / "one.html").exists()


def test_profile_shows_groups_choices_and_costs():
    outcome = run("profile", "resnet_digits", "--widths", "8,12,12,16,16,24")
    assert outcome.exit_code == 0
    for text in ("6 width groups", "1,189,344", "33,354", "chosen widths", "narrowest", "9 KiB"):
        assert text in outcome.output


def test_profile_says_what_is_tied_and_on_which_image_it_was_traced():
    shown = CliRunner().invoke(app, ["profile", "resnet_digits"]).output
    assert "features.3 has the channels of 2 layers: features.3, features.6.residual.3\n" in shown
    assert "Traced on an image of 1x8x8, the model's usual size (--image-size gives another)." in shown
    shown = CliRunner().invoke(app, ["profile", "resnet_digits", "--image-size", "16"]).output
    assert "Traced on an image of 1x16x16.\n" in shown


def test_profile_lists_names():
    outcome = run("profile", "--list")
    assert outcome.exit_code == 0
    for text in ("vgg19", "cifar10", "vgg19-cifar10"):
        assert text in outcome.output


@pytest.mark.parametrize("command", [[], ["search"], ["profile"], ["report"], ["status"]])
def test_help_reads_like_a_manual_page(command):
    outcome = run(*command, "--help")
    assert outcome.exit_code == 0
    assert "Example" in outcome.output
    assert f"bcnet {command[0] if command else 'search'}" in outcome.output


def test_help_shows_brackets_as_they_are():
    assert "NAME[:KEY=VALUE,...]" in run("search", "--help").output


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5", 0.5), ("1.0", 1.0), (".25", 0.25), ("150M", 150_000_000), ("1.5g", 1_500_000_000), ("20_000", 20_000)],
)
def test_a_budget_is_a_ratio_or_a_count(text, value):
    found = parse.budget(text, None).macs
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["", "x", "-1", "1e5", "0.5.5", "M", "nan", "inf", "_"])
def test_other_budgets_are_refused(text):
    with pytest.raises(BudgetError, match="a limit on macs must be a ratio"):
        parse.budget(text, None)


def test_changes_have_yaml_types():
    assert parse.changes(["lr=0.1", "epochs=3", "optimizer=rmsprop", "clip_norm=null"]) == {
        "lr": 0.1,
        "epochs": 3,
        "optimizer": "rmsprop",
        "clip_norm": None,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_stop_says_what_is_kept_and_the_run_goes_on(tmp_path, sent, code):
    command = [sys.executable, "-W", "error", "-m", "bcnet", *SEARCH, "--epochs", "1"]
    command += ["--method", "bcnet:epochs=2,population=2,generations=1,parents=1", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "run" / "settings.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, sent)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert "Run the same command to resume" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run" / "result.json").exists()
    outcome = run(*command[5:])
    assert outcome.exit_code == 0, outcome.output
    assert read_document(tmp_path / "run" / "result.json")["epochs"] == {"supernet": 2, "final": 1}


@pytest.mark.slow
def test_a_model_may_live_in_the_current_folder(tmp_path):
    (tmp_path / "shed.py").write_text("from bcnet.models import create\n\nmake = create('resnet20').build\n")
    (tmp_path / "yaml.py").write_text("raise RuntimeError('what is installed goes first')\n")
    start = [sys.executable, "-P", "-c", "from bcnet.cli import main; main()"]  # -P: as the installed command starts
    arguments = ["profile", "shed:make", "--image-size", "8"]
    shown = subprocess.run([*start, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "shed:make: 12 width groups" in shown.stdout


READER = """
import torch
from torch import nn

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.sound, self.words = nn.Conv1d(1, 8, 80, 16), nn.Embedding(10, 6)
        self.head = nn.Linear(14, 3)

    def forward(self, sound, words):
        return self.head(torch.cat([self.sound(sound).relu().mean(2), self.words(words).mean(1)], 1))
"""


@pytest.mark.slow
def test_a_profile_is_of_what_the_network_takes(tmp_path):
    (tmp_path / "reader.py").write_text(READER)
    start = [sys.executable, "-P", "-c", "from bcnet.cli import main; main()"]
    arguments = ["profile", "reader:Reader", "--input", "1,16000", "--input", "12:int64"]
    shown = subprocess.run([*start, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "2 width groups" in shown.stdout
    assert f"{8 * 80 * 996 + 14 * 3:,}" in shown.stdout


@pytest.mark.slow
def test_a_search_of_code_that_the_user_named_ends_with_the_report(tmp_path):
    outcome = run(*QUICK, "--model", "bcnet.models.resnet:resnet_digits", "--out", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    assert "Milliseconds per batch" in (tmp_path / "report.html").read_text()
    assert f"bcnet export {tmp_path} --model bcnet.models.resnet:resnet_digits" in outcome.output


def test_python_m_bcnet_is_the_command():
    shown = subprocess.run([sys.executable, "-m", "bcnet", "--help"], capture_output=True, text=True, check=True)
    assert re.search(r"search.*profile.*report", shown.stdout, re.DOTALL)


def test_the_program_says_its_version():
    from importlib import metadata

    told = run("--version")
    assert (told.exit_code, told.stdout) == (0, f"bcnet {metadata.version('bcnet')}\n")
