import hashlib
import os
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from bcnet.errors import RunError
from bcnet.files.atomic import previous_of, write_atomic
from bcnet.files.tensors import read_latest, read_tensors, write_tensors

IDENTITY = {"stage": "supernet", "run": "abc"}


def write(path, value=1.0, **options):
    write_tensors(path, {"w": torch.full((3,), value), "n": torch.tensor(2)}, IDENTITY, {"step": 7}, **options)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "c.safetensors"
    write(path)
    tensors, state = read_tensors(path, IDENTITY)
    assert torch.equal(tensors["w"], torch.ones(3))
    assert state == {"step": 7}
    assert set(load_file(path)) == {"w", "n"}  # any reader of safetensors reads it
    assert os.listdir(tmp_path) == ["c.safetensors"]


def test_equal_content_gives_equal_bytes(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_changed_byte_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("c") / "c.safetensors"
    write(path)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises(RunError):
        read_tensors(path, IDENTITY)


@pytest.mark.parametrize("length", [0, 4, 8, 100, -1])
def test_a_truncated_file_is_damaged(tmp_path, length):
    path = tmp_path / "c.safetensors"
    write(path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(RunError, match="damaged or not ours"):
        read_tensors(path, IDENTITY)


def test_a_good_file_in_the_wrong_place_is_refused(tmp_path):
    path = tmp_path / "c.safetensors"
    write(path)
    with pytest.raises(RunError, match=r"belongs to .*supernet.*expected .*final"):
        read_tensors(path, {"stage": "final", "run": "abc"})


def test_the_previous_checkpoint_stands_in_for_a_damaged_one(tmp_path):
    path = tmp_path / "c.safetensors"
    assert read_latest(path, IDENTITY) is None
    write(path, 1.0, keep_previous=True)
    write(path, 2.0, keep_previous=True)
    assert float(read_latest(path, IDENTITY)[0]["w"][0]) == 2.0
    path.write_bytes(b"")
    assert float(read_latest(path, IDENTITY)[0]["w"][0]) == 1.0
    previous_of(path).write_bytes(b"")
    with pytest.raises(RunError, match="damaged"):
        read_latest(path, IDENTITY)


def test_a_file_system_that_refuses_leaves_nothing_half_written(tmp_path):
    with pytest.raises(RunError, match="cannot be written"):
        write_atomic(tmp_path / "none" / "file", b"x")
    target = tmp_path / "directory"
    target.mkdir()
    with pytest.raises(RunError, match="cannot be written"):
        write_atomic(target, b"x")
    assert os.listdir(tmp_path) == ["directory"]


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """What a power failure may undo: content before `fsync` of the file, names before `fsync` of the folder."""
    events = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor):
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        events.append(("sync", "folder" if name == tmp_path.name else name.strip(".").split(".")[0]))
        fsync(descriptor)

    def replaced(source, target):
        events.append(("rename", os.path.basename(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write(tmp_path / "c.safetensors", keep_previous=True)
    assert events == [("sync", "c"), ("rename", "c.safetensors"), ("sync", "folder")]
    events.clear()
    write(tmp_path / "c.safetensors", keep_previous=True)
    assert events == [
        ("sync", "c"),
        ("rename", "c.previous.safetensors"),
        ("rename", "c.safetensors"),
        ("sync", "folder"),
    ]


def test_a_good_checksum_on_what_is_no_tensor_file_is_refused(tmp_path):
    path = tmp_path / "c.safetensors"
    write(path)
    content = path.read_bytes().replace(b'"F32"', b'"X99"')
    blank = re.sub(rb"[0-9a-f]{64}", b"0" * 64, content)
    path.write_bytes(blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1))
    with pytest.raises(RunError, match="damaged or not ours"):
        read_tensors(path, IDENTITY)
