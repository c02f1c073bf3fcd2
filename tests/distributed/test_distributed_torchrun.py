"""The command line under the real torchrun."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from bcnet.files.documents import read_document

pytestmark = pytest.mark.slow

MODEL = '''
import time
import torch
from torch import nn


class Network(nn.Module):
    """Slow enough to be killed in the middle of everything."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.1))
        self.second = nn.Sequential(nn.Conv2d(8, 12, 3), nn.BatchNorm2d(12), nn.ReLU())
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        time.sleep(0.01)
        return self.head(self.second(self.first(x)).mean((2, 3)))
'''
SEARCH = ("search", "--model", "slow_model:Network", "--data", "digits", "--budget", "0.5", "--threads", "1")
SHORT = ("--epochs", "3", "--num-choices", "6", "--precision", "fp32", "--method")
SHORT += ("bcnet:population=6,generations=5,parents=3",)
FILES = ("supernet", "records", "original", "uniform", "final")


def torchrun(folder: Path, *command: str, restarts: int = 0) -> subprocess.Popen[str]:
    (folder / "slow_model.py").write_text(MODEL)
    launcher = ("torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", str(restarts))
    rendezvous = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--monitor-interval", "0.1")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-m", *launcher, *rendezvous, "-m", "bcnet", *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def worker(launcher: subprocess.Popen[str], rank: int) -> int | None:
    """The process of `rank` under a running torchrun."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    for child in children:
        try:
            environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"RANK={rank}".encode() in environment:
            return int(child)
    return None


def kill_when(launcher: subprocess.Popen[str], ready: Callable[[], bool], rank: int) -> None:
    while not ready():
        if launcher.poll() is not None:
            pytest.fail("".join(launcher.communicate()))
        time.sleep(0.02)
    process = worker(launcher, rank)
    assert process is not None
    os.kill(process, signal.SIGKILL)


def evaluations(run: Path) -> list[tuple[object, ...]]:
    if not (run / "evaluations.sqlite").exists():
        return []
    connection = sqlite3.connect(f"file:{run / 'evaluations.sqlite'}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT widths, score, macs, params FROM evaluations ORDER BY position").fetchall()
    except sqlite3.OperationalError:  # being made
        return []
    finally:
        connection.close()


def test_killed_processes_are_started_again_and_the_run_ends_like_an_undisturbed_one(tmp_path):
    whole, disturbed = tmp_path / "whole", tmp_path / "disturbed"
    undisturbed = torchrun(tmp_path, *SEARCH, *SHORT, "--out", str(whole))
    shown, errors = undisturbed.communicate()
    assert undisturbed.returncode == 0, errors
    assert shown.count("evolution: 30 candidates") == 1  # one process speaks

    launcher = torchrun(tmp_path, *SEARCH, *SHORT, "--out", str(disturbed), restarts=2)
    kill_when(launcher, (disturbed / "checkpoints").exists, rank=1)
    kill_when(launcher, lambda: len(evaluations(disturbed)) > 3, rank=0)
    _, errors = launcher.communicate()
    assert launcher.returncode == 0, errors

    assert evaluations(disturbed) == evaluations(whole)
    for name in FILES:
        assert (disturbed / f"{name}.safetensors").read_bytes() == (whole / f"{name}.safetensors").read_bytes()
    results = [read_document(run / "result.json") for run in (whole, disturbed)]
    for result in results:
        result.pop("seconds")
        result.pop("belongs_to")
    assert results[0] == results[1]
    assert results[0]["device"]["processes"] == 2
    assert load_file(disturbed / "final.safetensors")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("--model", "resnet_digitz"), "nearest: resnet_digits"),
        (("--set", "batch_size=1"), "got batch_size 1 for 2 processes"),
        (("--speed", "9"), "No such option"),
    ],
)
def test_a_mistake_is_told_once_and_nothing_is_written(tmp_path, command, message):
    launcher = torchrun(tmp_path, *SEARCH, *SHORT, *command, "--out", str(tmp_path / "run"))
    shown, errors = launcher.communicate()
    assert launcher.returncode == 1  # torchrun's own, whatever its processes end with
    assert "exitcode  : 2" in errors
    assert errors.count(message) == 1, errors
    assert errors.count("Traceback (most recent call last)") == 1, errors  # torchrun's own
    assert shown == ""
    assert not (tmp_path / "run").exists()
