"""The command line, killed for real."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from bcnet.cli.app import app
from bcnet.run.directory import RunDirectory, read_settings
from tests.robustness import chaos

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="file events are watched through inotify")

SHORT = {"--epochs": "1", "--method": "bcnet:population=6,generations=2,parents=3"}


@pytest.fixture(scope="module", autouse=True)
def _short():
    """Every stage of the study's run, and half of its steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            chaos,
            "SETTINGS",
            chaos.SETTINGS | SHORT,
        )
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    process = chaos.Process(tmp_path_factory.mktemp("runs") / "undisturbed").run()
    assert process.code == 0, process.errors
    assert list(process.began) == list(chaos.STAGES)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 6])  # the one: SIGKILL in the supernet
def test_a_run_killed_again_and_again_ends_like_one_that_nobody_disturbed(undisturbed, tmp_path, kills):
    expected = chaos.traces(undisturbed.folder)
    rows = chaos.one_run(tmp_path / "run", undisturbed, expected, kills, random.Random(kills))
    assert rows
    assert {row["outcome"] for row in rows} == {"identical"}


@pytest.mark.slow
def test_two_processes_on_one_run(tmp_path):
    options = {"--model": "resnet_digits", "--data": "digits", "--budget": "0.5", "--epochs": "99", "--threads": "1"}
    arguments = ["search", *(text for pair in options.items() for text in pair), "--out", str(tmp_path / "run")]
    lock = tmp_path / "run" / "lock"
    with subprocess.Popen([sys.executable, "-m", "bcnet", *arguments], stdout=subprocess.DEVNULL) as first:
        while first.poll() is None and not (lock.exists() and lock.read_text().endswith("\n")):
            time.sleep(0.05)
        second = CliRunner().invoke(app, arguments)
        os.kill(first.pid, signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL
    assert second.exit_code == 2
    owner = f"process {first.pid} on {socket.gethostname()} works in run directory"
    assert re.search(re.escape(owner), second.stderr), second.stderr
    assert lock.read_text().startswith(f"{first.pid} on")
    with RunDirectory.open(tmp_path / "run", read_settings(tmp_path / "run")):  # a dead first does not block
        assert lock.read_text().startswith(f"{os.getpid()} on")
