"""Ctrl-C in a search from Python ends with one sentence, and the same call resumes."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import bcnet
from bcnet.api.search import one_line_stop

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
import torch._dynamo  # as a run does in its course: Python then ends with code 1 by itself
from tiny_job import tiny_search
tiny_search(sys.argv[1], training={"epochs": 400})
"""


def test_ctrl_c_ends_a_script_with_one_sentence(tmp_path):
    run = tmp_path / "run"
    (tmp_path / "script.py").write_text(SCRIPT)
    job = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(run), str(Path(__file__).parents[1])],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (run / "progress.json").exists():
        assert time.monotonic() < deadline
        assert job.poll() is None
        time.sleep(0.1)
    job.send_signal(signal.SIGINT)
    _, said = job.communicate(timeout=60)
    assert said.strip() == f"Stopped. Finished work is kept in {run}; the same call resumes it."
    assert job.returncode in (130, -signal.SIGINT)
    assert bcnet.Run.open(run).status.state == "stopped"


def test_a_notebook_shows_the_sentence_alone(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # given back at the end
    assert one_line_stop("Stopped.")._render_traceback_() == ["Stopped."]
