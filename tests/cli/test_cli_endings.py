"""How commands end when the machine or the user stops them."""

import errno
import os
import signal
import subprocess
import sys

import pytest
import torch
import typer

from bcnet.cli import main
from bcnet.cli.endings import Terminated, guard, kept_in_run, printable, silence_other_ranks, stoppable
from bcnet.errors import RunError
from bcnet.progress.record import Record, StageRecord, write_record


def ending(raising, capsys):
    """Exit code and message of a command that does what `raising` does."""
    with pytest.raises(typer.Exit) as stop:
        guard(raising)()
    return stop.value.exit_code, capsys.readouterr().err


def raises(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("raising", "code", "message"),
    [
        (raises(RunError("it is so")), 2, "Error: it is so\n"),
        (raises(KeyboardInterrupt()), 130, "Stopped.\n"),
        (raises(Terminated()), 143, "Stopped.\n"),
        (raises(MemoryError()), 2, "Error: the memory of this machine or device does not suffice"),
        (lambda: torch.empty(10**14), 2, "can't allocate memory"),
        (raises(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")), 2, "CUDA out of memory"),
        (raises(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "log")), 2, "log cannot be written: No space left"),
    ],
)
def test_one_message_and_a_code(raising, code, message, capsys):
    found, text = ending(raising, capsys)
    assert found == code
    assert message in text
    assert text.count("\n") == 1


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError(errno.ENOENT, "gone"), KeyError("a bug")])
def test_a_bug_keeps_its_traceback(error):
    with pytest.raises(type(error)):
        guard(raises(error))()


STOPPED_IN_A_CALLBACK = """
import os, signal, sys, time, weakref
from bcnet.cli.endings import exit_code, take_every_stop

class Referent:
    pass

def stopped(_):
    os.kill(os.getpid(), int(sys.argv[1]))
    for _ in range(100):
        pass

take_every_stop()
referent = Referent()
reference = weakref.ref(referent, stopped)
try:
    del referent
    time.sleep(60)
except KeyboardInterrupt as stop:
    sys.exit(exit_code(stop))
"""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_that_python_drops_is_sent_again(sent, code):
    words = [sys.executable, "-W", "error", "-c", STOPPED_IN_A_CALLBACK, str(int(sent))]
    process = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert (process.returncode, process.stderr) == (code, "")


def test_other_errors_that_python_drops_are_shown():
    dropping = "class Broken:\n    def __del__(self):\n        raise ValueError('dropped')\n"
    code = f"from bcnet.cli.endings import take_every_stop\ntake_every_stop()\n{dropping}Broken()\n"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert process.returncode == 0
    assert "ValueError: dropped" in process.stderr


def test_a_stop_says_what_is_kept(tmp_path, capsys):
    def command():
        with stoppable(lambda: kept_in_run(tmp_path)):
            raise Terminated

    assert ending(command, capsys) == (143, "Stopped before anything was written.\n")
    for name in ("settings.json", "supernet.safetensors"):
        (tmp_path / name).touch()
    stages = (StageRecord("supernet", 9, "steps", file="supernet.safetensors"), StageRecord("prior", 1, "problem"))
    write_record(tmp_path, Record("running", 1, "here", 0.0, 0.0, stages))
    code, text = ending(command, capsys)
    assert code == 143
    assert f"kept in {tmp_path}: supernet, every scored candidate" in text
    assert "Run the same command to resume" in text


def test_quoted_text_cannot_steer_the_terminal(capsys):
    _, text = ending(raises(RunError("a name \x1b]0;owned\x07\nand \udcff more")), capsys)
    assert text == "Error: a name \\x1b]0;owned\\x07\\nand \\udcff more\n"
    assert printable("Größe, 50 °C") == "Größe, 50 °C"


@pytest.mark.parametrize(
    ("rank", "repeated", "shown"),
    [("0", None, True), ("1", None, False), ("0", True, False), ("1", False, True), ("", None, True)],
)
def test_of_several_processes_one_gives_the_message(monkeypatch, capfd, rank, repeated, shown):
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("RANK", rank)
    error = RunError("it is so")
    if repeated is not None:
        error.repeated = repeated  # what a group of processes has found out
    monkeypatch.setattr("sys.__stderr__", sys.stderr)

    def command():
        print("progress")
        guard(raises(error))()

    with pytest.raises(typer.Exit, match="2"), silence_other_ranks():
        command()
    said = capfd.readouterr()
    assert said.err == ("Error: it is so\n" if shown else "")
    assert said.out == ("progress\n" if rank != "1" else "")


def test_of_several_processes_one_says_that_it_was_stopped(monkeypatch, capfd):
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    for rank, text in (("0", "Stopped.\n"), ("1", "")):
        monkeypatch.setenv("RANK", rank)
        assert ending(raises(KeyboardInterrupt()), capfd) == (130, text)


def test_what_is_no_shared_work_is_done_by_the_first_process(monkeypatch, capfd):
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("sys.argv", ["bcnet", "profile", "--list"])
    main()
    assert capfd.readouterr() == ("", "")
