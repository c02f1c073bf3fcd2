"""Candidates that are trained at once: the same search whatever their number, and nothing is left of the processes."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from tiny_job import RECIPE, Recorder, StoppedError, TinyNetwork, tiny_data, tiny_search
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bcnet
from bcnet.distributed import can_fork, map_side_by_side
from bcnet.errors import DataError, ProcessError, RecipeError
from bcnet.files.documents import read_document
from bcnet.machine.defaults import threads, trains_side_by_side

pytestmark = pytest.mark.skipif(not can_fork(), reason="no copies of a process here, or a GPU that they could not use")
SHORT = bcnet.Trainings(networks=9, epochs=1)


def is_there(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("processes", [1, 2, 3, 20])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_come_in_order_as_those_of_map(processes, count):
    def work(number):
        time.sleep(0.02 * ((number * 5) % 3))
        return [number, number / 3]

    assert list(map_side_by_side(work, range(count), processes=processes)) == list(map(work, range(count)))


def test_more_calls_than_a_pipe_holds_are_all_done():
    assert list(map_side_by_side(lambda number: -number, range(2500), processes=2)) == [-n for n in range(2500)]


def test_networks_are_trained_there_as_here():
    def trained(seed):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
        optimizer = torch.optim.SGD(network.parameters(), 0.1)
        for _ in range(3):
            loss = network(torch.rand(8, 1, 8, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [loss.item(), torch.get_num_threads()]

    with threads(2):
        found = list(map_side_by_side(trained, range(5), processes=2))
    with threads(1):
        assert found == [trained(seed) for seed in range(5)]


@pytest.mark.parametrize(("error", "found"), [(DataError("no images"), DataError), (KeyError("x"), ProcessError)])
def test_an_error_is_raised_at_its_place(error, found):
    def work(number):
        if number == 2:
            raise error
        return number

    results = map_side_by_side(work, range(5), processes=2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(found, match=r"no images|KeyError: 'x'"):
        next(results)


def test_a_copy_that_dies_is_told_of():
    def work(number):
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    results = map_side_by_side(work, range(4), processes=2)
    assert next(results) == 0
    with pytest.raises(ProcessError, match=r"ended without an error message.*--at-once 1"):
        list(results)


def test_copies_that_do_nothing_are_given_up(monkeypatch):
    monkeypatch.setattr("bcnet.distributed.side_by_side._SILENCE", 0.5)
    here = os.getpid()

    def compute(seconds):
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass
        return os.getpid() == here

    assert not any(map_side_by_side(compute, [2, 2], processes=2)), "copies that compute are waited for"

    def sleep(number):
        if number and os.getpid() != here:
            time.sleep(600)
        return [number, os.getpid() == here]

    assert list(map_side_by_side(sleep, range(3), processes=2)) == [[0, False], [1, True], [2, True]]


def test_no_copy_is_left_when_nobody_wants_more():
    results = map_side_by_side(lambda _: os.getpid(), range(40), processes=3)
    first = next(results)
    assert first != os.getpid()
    results.close()
    assert not is_there(first)
    with pytest.raises(ChildProcessError):  # it has been waited for
        os.waitpid(first, os.WNOHANG)


SCRIPT = """
import os, time
from bcnet.distributed import map_side_by_side

def tell():
    os.write(1, b"%d\\n" % os.getpid())  # in one piece: two copies tell at once

def work(number):
    tell()
    time.sleep(600)

tell()
list(map_side_by_side(work, range(2), processes=2))
"""


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_copies_end_with_the_process_however_it_ends(stop):
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        copies = [int(running.stdout.readline()) for _ in range(3)][1:]
        assert all(map(is_there, copies))
        try:
            running.send_signal(stop)
            running.wait(60)
        finally:
            running.kill()
    until = time.monotonic() + 30
    while any(map(is_there, copies)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_there, copies))


def left(folder):
    """Everything that a search leaves and that must not depend on how many candidates were trained at once."""
    result = {key: value for key, value in read_document(folder / "result.json").items() if key != "seconds"}
    files = {name: (folder / name).read_bytes() for name in ("original.safetensors", "final.safetensors")}
    return result, bcnet.Run.open(folder).evaluations, files


@pytest.fixture(scope="module")
def one_after_the_other(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "alone"
    tiny_search(folder, method=SHORT, start="original")
    return left(folder)


@pytest.mark.parametrize("at_once", [2, 3])
def test_a_search_is_the_same_whatever_the_number(one_after_the_other, tmp_path, at_once):
    tiny_search(tmp_path, method=SHORT, start="original", options={"threads": 1, "at_once": at_once})
    assert left(tmp_path) == one_after_the_other


def test_a_stopped_search_goes_on_with_another_number(one_after_the_other, tmp_path):
    stop = Recorder(("trials", 4))
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, method=SHORT, start="original", options={"threads": 1, "at_once": 3}, reporter=stop)
    assert 0 < len(bcnet.Run.open(tmp_path).evaluations) < 9
    tiny_search(tmp_path, method=SHORT, start="original", options={"threads": 1, "at_once": 2})
    assert left(tmp_path) == one_after_the_other


def test_an_imitation_is_the_same_side_by_side(tmp_path):
    torch.manual_seed(3)
    original = TinyNetwork()
    found = {
        number: tiny_search(
            tmp_path / str(number),
            model=original,
            task="imitation",
            start="pretrained",
            method=SHORT,
            options={"threads": 1, "at_once": number},
            until="widths",
        )
        for number in (1, 3)
    }
    assert found[1].found.evaluations == found[3].found.evaluations


def test_small_networks_are_trained_so_by_themselves(tmp_path):
    assert trains_side_by_side(8 * 2**20)
    assert not trains_side_by_side(64 * 2**20), "large ones keep all threads"
    assert not trains_side_by_side(0), "unknown"
    tiny_search(tmp_path / "two", method=SHORT, options={"threads": 2}, until="widths")
    options = bcnet.Run.open(tmp_path / "two").settings.options
    assert (options.threads, options.candidate_threads, options.side_by_side) == (2, 1, 2)
    tiny_search(tmp_path / "three", method=SHORT, options={"threads": 2, "at_once": 3}, until="widths")
    mine, theirs = (bcnet.Run.open(tmp_path / name).evaluations for name in ("two", "three"))
    assert mine == theirs
    tiny_search(tmp_path / "one", method=SHORT, options={"threads": 2, "at_once": 1}, until="widths")
    assert bcnet.Run.open(tmp_path / "one").settings.options.candidate_threads is None


def test_a_candidate_has_its_own_number_of_threads(tmp_path):
    seen = []

    def score(outputs, targets):
        seen.append(torch.get_num_threads())
        return (outputs.argmax(1) == targets).float()

    options = {"threads": 2, "candidate_threads": 1, "at_once": 1}
    tiny_search(
        tmp_path,
        method=SHORT.model_copy(update={"score": score}),
        tags={"score": "hits"},
        options=options,
        until="widths",
    )
    assert set(seen) == {1}


def test_loaders_of_ones_own_are_read_by_one_process(tmp_path):
    data = tiny_data()
    parts = [
        DataLoader(TensorDataset(data.normaliser(part.pixels), part.labels), batch_size=16)
        for part in (data.train, data.test, data.test)
    ]
    with pytest.raises(RecipeError, match=r"at once .* data in memory.*got at_once 2.*leave --at-once out"):
        bcnet.search(
            TinyNetwork,
            tuple(parts),
            bcnet.Budget(macs=0.5),
            tmp_path,
            method=SHORT,
            training=RECIPE,
            options={"threads": 1, "at_once": 2},
            progress=False,
        )
