"""A run goes on to the same end from checkpoints that are damaged, gone, old or of another run."""

import dataclasses
import shutil

import pytest
from tiny_job import Recorder, StoppedError, traces
from tiny_job import tiny_supernet_search as tiny_search

from bcnet.errors import RunError
from bcnet.files.atomic import previous_of
from bcnet.stages.base import Context

plain = Context.checkpoints


def every_third_step(self, *arguments):
    return dataclasses.replace(plain(self, *arguments), every_steps=3)


def halted(folder, stage, **changes):
    """A run that was stopped after step 7 of a training, with the states of steps 3 and 6."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Context, "checkpoints", every_third_step)
        with pytest.raises(StoppedError):
            tiny_search(folder, reporter=Recorder((stage, 7)), **changes)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    tiny_search(place / "whole", report=True)
    return {
        "whole": traces(place / "whole"),
        "supernet": halted(place / "a", "supernet"),
        "searched": halted(place / "b", "searched"),
        "other": halted(place / "c", "supernet", seed=1),
    }


def flipped(newest, runs):
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)


def truncated(newest, runs):
    newest.write_bytes(newest.read_bytes()[:-100])


def emptied(newest, runs):
    newest.write_bytes(b"")


def gone(newest, runs):
    newest.unlink()


def of_another_stage(newest, runs):
    shutil.copy(runs["supernet"] / "checkpoints" / "supernet.safetensors", newest)


def of_another_run(newest, runs):
    shutil.copy(runs["other"] / "checkpoints" / "supernet.safetensors", newest)


def older_over_newer(newest, runs):
    shutil.copy(previous_of(newest), newest)


def swapped(newest, runs):
    content = newest.read_bytes()
    shutil.copy(previous_of(newest), newest)
    previous_of(newest).write_bytes(content)


def previous_emptied(newest, runs):
    previous_of(newest).write_bytes(b"")


BAD = (flipped, truncated, emptied, of_another_stage, of_another_run)


@pytest.mark.parametrize("harm", [*BAD, gone, older_over_newer, swapped, previous_emptied])
def test_the_end_is_the_same_whatever_happened_to_a_checkpoint(runs, tmp_path, harm, caplog):
    folder = tmp_path / "run"
    shutil.copytree(runs["searched"], folder)
    harm(folder / "checkpoints" / "searched.safetensors", runs)
    tiny_search(folder, report=True)
    assert traces(folder) == runs["whole"]
    told = [record.message for record in caplog.records if "resuming from the checkpoint before it" in record.message]
    assert len(told) == (1 if harm in BAD else 0)
    assert all("searched.safetensors" in message for message in told)


def test_a_stage_without_one_good_checkpoint_stops_and_begins_again_once_they_are_gone(runs, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(runs["supernet"], folder)
    newest = folder / "checkpoints" / "supernet.safetensors"
    emptied(newest, runs)
    previous_emptied(newest, runs)
    with pytest.raises(RunError, match=r"supernet\.safetensors is damaged or not ours"):
        tiny_search(folder)
    for file in (newest, previous_of(newest)):
        file.unlink()
    tiny_search(folder, report=True)
    assert traces(folder) == runs["whole"]
