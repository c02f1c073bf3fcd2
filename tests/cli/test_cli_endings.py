"""How commands end when the machine or the user stops them."""

import errno
import os

import pytest
import torch
import typer

from bcnet.cli.endings import Terminated, guarded, printable, stoppable
from bcnet.errors import RunError


def ending(raising, capsys):
    """Exit code and message of a command that does what `raising` does."""
    with pytest.raises(typer.Exit) as stop:
        guarded(raising)()
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
        guarded(raises(error))()


def test_a_stop_says_what_is_kept(tmp_path, capsys):
    def command():
        with stoppable(tmp_path):
            raise Terminated

    assert ending(command, capsys) == (143, "Stopped before anything was written.\n")
    for name in ("settings.json", "supernet.safetensors"):
        (tmp_path / name).touch()
    code, text = ending(command, capsys)
    assert code == 143
    assert f"kept in {tmp_path}: supernet, every scored candidate" in text
    assert "Run the same command to go on" in text


def test_quoted_text_cannot_steer_the_terminal(capsys):
    _, text = ending(raises(RunError("a name \x1b]0;owned\x07\nand \udcff more")), capsys)
    assert text == "Error: a name \\x1b]0;owned\\x07\\nand \\udcff more\n"
    assert printable("Größe, 50 °C") == "Größe, 50 °C"
