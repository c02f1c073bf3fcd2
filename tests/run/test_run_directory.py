"""A run directory keeps to itself: one process, one run, nothing that leads out of it, nothing half-written."""

import json
import os
import socket
import subprocess
import sys

import pytest

import bcnet
from bcnet.errors import RunError
from bcnet.files.atomic import make_folder
from bcnet.files.documents import read_document
from bcnet.run.directory import RunDirectory, check_usable, read_settings
from bcnet.run.settings import make_settings
from bcnet.run.status import read_status
from bcnet.train import Recipe

RECIPE = Recipe(lr=0.1, batch_size=8, epochs=2)
HOLD = "import fcntl, sys; lock = open(sys.argv[1], 'a'); fcntl.flock(lock, fcntl.LOCK_EX); print(flush=True); input()"


def settings(**changes):
    values = {"model": "m", "data": "d", "limits": {"macs": 0.5}, "method": bcnet.Uniform(), "training": RECIPE}
    return make_settings(**(values | changes))


def opened(folder, **changes):
    return RunDirectory.open(folder, settings(**changes))


def test_the_second_process_is_told_of_the_first(tmp_path):
    with opened(tmp_path), pytest.raises(RunError) as refusal, opened(tmp_path):
        pass
    assert f"process {os.getpid()} on {socket.gethostname()} works in run directory" in str(refusal.value)
    with opened(tmp_path):  # and has its turn afterwards
        pass


def test_a_dead_process_blocks_nobody_whoever_has_its_number_now(tmp_path):
    (tmp_path / "lock").write_text(f"{os.getppid()} on {socket.gethostname()}\n")
    with opened(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()} on {socket.gethostname()}\n"


def test_a_lock_outlives_its_file_content(tmp_path):
    with opened(tmp_path):
        pass
    (tmp_path / "lock").write_text("")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        with pytest.raises(RunError, match="process another works in"), opened(tmp_path):
            pass
        process.kill()
    with opened(tmp_path):
        pass


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_hold_the_lock_on(tmp_path):
    with opened(tmp_path):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # as a worker that decodes images: it outlives its parent by a moment
            os.read(reading, 1)
            os._exit(0)
    with opened(tmp_path):
        os.write(writing, b"x")
    assert os.waitpid(child, 0)[1] == 0
    for end in (reading, writing):
        os.close(end)


def link(folder):
    return (folder / "checkpoints").symlink_to(folder.parent)


def linked_lock(folder):
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(folder.parent / "precious")


def pipe(folder):
    os.mkfifo(folder / "seconds.json")


@pytest.mark.parametrize(
    ("plant", "message"),
    [(link, "checkpoints is a link"), (linked_lock, "lock is a link"), (pipe, "is no regular file")],
)
def test_nothing_leads_out_of_a_run_directory(tmp_path, plant, message):
    precious, folder = tmp_path / "precious", tmp_path / "run"
    precious.write_text("mine")
    with opened(folder):
        pass
    plant(folder)
    for use in (lambda: check_usable(folder), lambda: read_settings(folder), lambda: opened(folder).__enter__()):
        with pytest.raises(RunError, match=message):
            use()
    assert precious.read_text() == "mine"


def test_the_run_directory_itself_may_be_a_link(tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "scratch")
    with opened(tmp_path / "run") as directory:
        directory.write("x.json", {})
    assert (tmp_path / "scratch" / "x.json").exists()


@pytest.mark.parametrize("gone", ["evaluations.sqlite-journal", ".prior.json.4711.tmp", "checkpoints"])
def test_what_the_run_removes_while_it_is_looked_at_is_passed_over(tmp_path, monkeypatch, gone):
    with opened(tmp_path):
        pass
    place = tmp_path / gone
    if gone == "checkpoints":
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    walk = os.walk

    def walk_too_late(*args, **kwargs):
        for found in walk(*args, **kwargs):
            if place.exists():
                place.rmdir() if place.is_dir() else place.unlink()
            yield found

    monkeypatch.setattr("bcnet.files.untrusted.os.walk", walk_too_late)
    assert read_status(tmp_path).folder == str(tmp_path)
    assert not place.exists()


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    with opened(tmp_path) as directory:
        directory.checkpoint("supernet")
    stale = [tmp_path / ".prior.json.4711.tmp", tmp_path / "checkpoints" / ".supernet.safetensors.4711.tmp"]
    for file in (*stale, tmp_path / "notes.tmp"):
        file.write_bytes(b"half")
    with opened(tmp_path):
        assert not any(file.exists() for file in stale)
        assert (tmp_path / "notes.tmp").exists()


def test_a_document_of_another_run_or_name_is_refused(tmp_path):
    with opened(tmp_path / "a") as first:
        first.write("prior.json", {"rows": [1]})
        assert first.read("prior.json") == {"rows": [1]}
        os.link(tmp_path / "a" / "prior.json", tmp_path / "a" / "rescored.json")
        with pytest.raises(RunError, match=r"rescored.json belongs to .*prior.json.*expected .*rescored.json"):
            first.read("rescored.json")
    with opened(tmp_path / "b", seed=1) as second:
        os.link(tmp_path / "a" / "prior.json", tmp_path / "b" / "prior.json")
        with pytest.raises(RunError, match=r"prior.json belongs to .*expected"):
            second.read("prior.json")


def test_an_interruption_is_not_hidden_by_times_that_cannot_be_written(tmp_path):
    with opened(tmp_path) as directory:
        (tmp_path / "seconds.json").mkdir()
        with pytest.raises(KeyboardInterrupt), directory.time_stage("prior"):
            raise KeyboardInterrupt
        with pytest.raises(RunError, match=r"seconds.json cannot be"), directory.time_stage("prior"):
            pass


def test_times_add_up(tmp_path):
    with opened(tmp_path) as directory:
        for _ in range(2):
            with directory.time_stage("prior"):
                pass
        directory.write("seconds.json", {"prior": 3.0})
        with directory.time_stage("prior"):
            pass
        assert directory.seconds()["prior"] >= 3


def test_a_folder_is_made_to_last(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("bcnet.files.atomic._sync_directory", synced.append)
    make_folder(tmp_path / "a" / "b")
    assert set(synced) == {tmp_path, tmp_path / "a"}
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be made"):
        make_folder(tmp_path / "file" / "a")


def test_plain_json_has_the_owner_beside_the_checksum(tmp_path):
    with opened(tmp_path) as directory:
        directory.write("x.json", {"top1": 1.0})
    assert set(json.loads((tmp_path / "x.json").read_text())) == {"sha256", "belongs_to", "top1"}
    assert read_document(tmp_path / "x.json")["top1"] == 1.0
