"""A disk that fills up or turns read-only costs the run nothing but a pause."""

import errno
import os
import re
import subprocess
import sys

import pytest
from tiny_job import tiny_supernet_search as tiny_search
from tiny_job import traces

from bcnet.errors import RunError

ROOT = sys.platform == "linux" and os.geteuid() == 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    tiny_search(folder, report=True)
    return traces(folder)


def mount(*arguments):
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path):
    """A file system in memory, and a function that changes its options."""
    if not ROOT or not mount("-t", "tmpfs", "-o", "size=32k", "bcnet-test", tmp_path):
        pytest.skip("mounting a small file system takes root, on Linux")
    yield tmp_path, lambda options: mount("-o", f"remount,{options}", tmp_path)
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


@pytest.mark.slow
def test_a_disk_that_fills_up_again_and_again(whole, small_disk, monkeypatch):
    folder, remount = small_disk
    monkeypatch.setattr("bcnet.machine.disk.free_bytes", lambda path: 1 << 40)  # the look ahead would stop it before
    messages = []
    for kilobytes in (round(32 * 1.25**number) for number in range(24)):
        assert remount(f"size={kilobytes}k")
        try:
            tiny_search(folder / "run", report=True)
        except RunError as error:
            messages.append(str(error))
        else:
            break
        assert not [name for _, _, names in os.walk(folder) for name in names if name.endswith(".tmp")]
    assert len(messages) >= 5
    for message in messages:
        assert re.search(r"No space left|disk is full", message), message
        assert re.search(r"make room", message), message
        assert str(folder / "run") in message
    assert traces(folder / "run") == whole


def test_a_disk_that_turns_read_only(whole, small_disk):
    folder, remount = small_disk
    assert remount("size=8m")
    (folder / "run").mkdir()
    assert remount("ro")
    with pytest.raises(RunError, match=r"run directory .* cannot be written: Read-only file system: give write access"):
        tiny_search(folder / "run", report=True)
    assert remount("rw")
    tiny_search(folder / "run", report=True)
    assert traces(folder / "run") == whole


@pytest.mark.parametrize("write", [1, 4, 8, 12])
def test_a_write_that_fails_is_made_good(whole, tmp_path, monkeypatch, write):
    """The same without root: the n-th file cannot be written."""
    fsync, count = os.fsync, 0

    def failing(descriptor):
        nonlocal count
        count += 1
        if count == write:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(RunError, match=r"No space left on device.*make room"):
        tiny_search(tmp_path / "run", report=True)
    monkeypatch.setattr(os, "fsync", fsync)
    tiny_search(tmp_path / "run", report=True)
    assert traces(tmp_path / "run") == whole
